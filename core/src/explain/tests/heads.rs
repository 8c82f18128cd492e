//! What holds a queue: one line for each gate.

use std::collections::HashSet;

use super::*;

fn held(facts: Facts) -> Holding {
    let queue = facts.queue.clone().unwrap();
    let (gate, head) = (head::gate_of(&facts), Head::Task(Box::new(facts)));
    let [all, some] = [Reader::OfAll, Reader::OfQueue].map(|reader| hold(&queue, &head, reader));
    assert_eq!((all.gate, all.next), (some.gate, some.next), "it depends on nobody");
    assert_eq!(all.gate, gate, "metrics and answers say the same");
    assert!(some.nodes.is_none() && !some.text.contains("n1"), "{some:?}");
    all
}

fn gate(task: Document, queue: Document) -> Hold {
    held(facts(task, queue)).gate
}

fn with_nodes(nodes: Vec<crate::model::Node>, busy: &[(&str, u64)]) -> Holding {
    let busy = busy.iter().map(|(node, tasks)| ((*node).to_owned(), *tasks)).collect();
    held(Facts { nodes, busy, ..facts(doc! {}, doc! {}) })
}

#[test]
fn the_task_may_be_what_holds_it() {
    let blocked = |gate: &str| doc! { "status": -4, "gate": gate };
    for (task, expected) in [
        (doc! {}, Hold::None),
        (doc! { "status": -1 }, Hold::None),
        (doc! { "status": 1 }, Hold::None),
        (doc! { "status": -7, "run_at": at(90) }, Hold::Deferred),
        (blocked("admission"), Hold::Admission),
        (blocked("locks"), Hold::Lock),
        (blocked("after"), Hold::Dependency),
        (blocked("array"), Hold::Dependency),
        (blocked("new"), Hold::Blocked),
        (doc! { "status": -4 }, Hold::Blocked),
    ] {
        assert_eq!(gate(task.clone(), doc! { "threads": 9 }), expected, "{task}");
    }
    let deferred = held(facts(doc! { "status": -7, "run_at": at(90) }, doc! { "paused": true }));
    assert_eq!(deferred.next, Some(at(90)), "what would hold it next is of no interest");
    let id = deferred.head.unwrap();
    assert_eq!(
        deferred.text,
        format!(
            "None of its tasks can be claimed yet; the first of them is {id}. The task is deferred until 2026-11-20 08:25:57 \
             UTC (in 1 min 30 s)."
        )
    );
}

#[test]
fn the_queue_may_be_what_holds_it() {
    for (queue, expected) in [
        (doc! { "paused": true, "reason": "repairs", "threads": 0 }, Hold::Paused),
        (doc! { "plugin": null }, Hold::Plugin),
        (doc! { "plugin": "../x" }, Hold::Plugin),
        (doc! { "threads": 0 }, Hold::Limit),
        (doc! { "threads": null }, Hold::Limit),
    ] {
        assert_eq!(gate(doc! {}, queue.clone()), expected, "{queue}");
    }
    let share = || Share { node: "n1".into(), tasks: 2, of_others: 0 };
    let full = held(Facts { shares: vec![share()], ..facts(doc! {}, doc! {}) });
    assert_eq!((full.gate, full.next), (Hold::Limit, None));
    assert_eq!(full.text, "The queue is full: 2 of 2 threads are in use, 2 on n1.");
    let rate = Rate { n: 5, per: 60, burst: 5 };
    let standing = |next| Some(Standing { rate, allowed: 0, next });
    let waits = standing(Some(Duration::from_millis(6_500)));
    let limited = held(Facts { rate: waits, ..facts(doc! {}, doc! {}) });
    assert_eq!((limited.gate, limited.next), (Hold::Rate, Some(at(7))));
    assert_eq!(limited.text, "The rate of the queue mail, 5 in 60 s, allows the next start in 7 s.");
    let allows = held(Facts { rate: standing(None), ..facts(doc! {}, doc! {}) });
    assert_eq!(allows.gate, Hold::None);
    let of_lost = |shares| {
        let nodes = vec![node("lost", doc! { "timestamp": at(-60), "seen": at(-60) })];
        held(Facts { shares, rate: waits, nodes, ..facts(doc! {}, doc! {}) })
    };
    for shares in [vec![share()], vec![]] {
        let lost = of_lost(shares);
        assert_eq!((lost.gate, lost.next), (Hold::Nodes, None), "nobody looks after it: {}", lost.text);
        assert!(
            lost.text.starts_with("No DEN is alive: the last one seen was that of lost"),
            "{}",
            lost.text
        );
    }
    let closed = facts(doc! {}, doc! { "threads": 0 });
    assert_eq!(held(Facts { nodes: vec![], ..closed }).gate, Hold::Limit, "that is no matter of nodes");
}

#[test]
fn a_head_that_no_node_takes_is_not_said_to_be_free() {
    let aside = Some(crate::task::SetAside { at: at(-1), reason: "too large".to_owned() });
    let held_aside = held(Facts { aside: aside.clone(), ..facts(doc! {}, doc! {}) });
    assert_eq!(held_aside.gate, Hold::Blocked);
    assert!(held_aside.text.contains(". It is set aside since "), "{}", held_aside.text);
    let changed_since = doc! { "mtime": at(0), "history": [] };
    assert_eq!(held(Facts { aside, ..facts(changed_since, doc! {}) }).gate, Hold::None);
    let fair = held(facts(doc! {}, doc! { "policy": "fair" }));
    assert_eq!(fair.gate, Hold::None);
    assert!(fair.text.starts_with("Nothing but its group "), "{}", fair.text);
}

#[test]
fn nodes_may_be_what_holds_it() {
    let other = || doc! { "plugins": ["Other"] };
    let full = || doc! { "maxthreads": 2 };
    let drained = || doc! { "state": "draining" };
    let elsewhere = || doc! { "serves": { "ignored": [queue_id()] } };
    for (nodes, busy, expected) in [
        (vec![], &[][..], Hold::Nodes),
        (vec![node("n1", drained())], &[], Hold::Nodes),
        (vec![node("n1", doc! { "maxthreads": 0 })], &[], Hold::Nodes),
        (vec![node("n1", elsewhere())], &[], Hold::Nodes),
        (vec![node("n1", other())], &[], Hold::Plugin),
        (vec![node("n1", other()), node("n2", elsewhere())], &[], Hold::Plugin),
        // One has it, and will be back.
        (vec![node("n1", other()), node("n2", drained())], &[], Hold::Nodes),
        (vec![node("n1", other()), node("n2", full())], &[("n2", 2)], Hold::Limit),
        (vec![node("n1", other()), node("n2", full())], &[("n2", 1)], Hold::None),
    ] {
        let names: Vec<_> = nodes.iter().map(|node| (&node.node, &node.rest)).collect();
        let names = format!("{names:?}");
        assert_eq!(with_nodes(nodes, busy).gate, expected, "{names}");
    }
    let told = with_nodes(vec![node("n1", other()), node("n2", doc! {})], &[]);
    let chances: Vec<(&str, usize)> =
        told.nodes.iter().flatten().map(|chance| (chance.node.as_str(), chance.why.len())).collect();
    assert_eq!((told.gate, chances), (Hold::None, vec![("n1", 1), ("n2", 0)]));
}

#[test]
fn a_queue_may_have_no_head() {
    let queue = facts(doc! {}, doc! {}).queue.unwrap();
    let empty = hold(&queue, &Head::Missing, Reader::OfAll);
    assert_eq!((empty.gate, empty.text.as_str()), (Hold::Empty, "No task of the queue mail waits."));
    let odd = hold(&queue, &Head::Unreadable("its _id is 5".into()), Reader::OfQueue);
    assert_eq!(odd.gate, Hold::Blocked);
    assert_eq!(odd.text, "The first task of the queue mail cannot be read: its _id is 5.");
}

#[test]
fn gates_have_different_words() {
    let words: HashSet<&str> = Hold::ALL.iter().map(|hold| hold.as_str()).collect();
    assert_eq!(words.len(), 12);
}
