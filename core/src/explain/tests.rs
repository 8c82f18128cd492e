//! One line for each state that an operator may ask about.

use std::collections::HashMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};

use super::*;
use crate::admission::{Action, Rule, Scope};
use crate::fair::Before;
use crate::gates::{AfterFailed, LockMode, LockWait, Relative, Waits};
use crate::model::{QueueId, TaskId};
use crate::rate::{Rate, Standing};

const NOW: i64 = 1_795_163_067_000;

fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(NOW + seconds * 1000)
}

fn with(mut document: Document, fields: Document) -> Document {
    for (name, value) in fields {
        document.insert(name, value);
    }
    document
}

fn queue_id() -> ObjectId {
    ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap()
}

/// A queued task of a queue with two threads, and one living node that can claim it.
fn facts(task: Document, queue: Document) -> Facts {
    let task =
        with(doc! { "_id": ObjectId::new(), "queue": queue_id(), "status": -2, "mtime": at(-5) }, task);
    let queue = with(doc! { "_id": queue_id(), "name": "mail", "plugin": "My::Mail", "threads": 2 }, queue);
    Facts {
        now: at(0),
        task: bson::deserialize_from_document(task).unwrap(),
        queue: Some(bson::deserialize_from_document(queue).unwrap()),
        shares: Vec::new(),
        nodes: vec![node("n1", doc! {})],
        busy: HashMap::new(),
        ahead: Ahead::Tasks(0),
        waits: Waits::default(),
        held_by: None,
        rate: None,
        group_rate: None,
        aside: None,
    }
}

#[test]
fn a_task_that_waits_for_an_answer_says_whose_and_until_when() {
    let awaiting = doc! {
        "title": "Go on?", "who": ["ann"], "asked": at(-60), "deadline": at(60), "on_deadline": "cancel", "attempt": 1,
    };
    let task = doc! { "status": -7, "run_at": at(60), "awaiting": awaiting };
    let explained = explain(&facts(task, doc! {}));
    let expected = "The task waits for an answer of ann since 2026-11-20 08:23:27 UTC, and is cancelled after 2026-11-20 08:25:27 UTC: Go on?";
    assert_eq!(explained.summary, expected);
}

#[test]
fn a_task_that_is_set_aside_says_so_first() {
    let aside =
        |seconds: i64| Some(crate::task::SetAside { at: at(seconds), reason: "too large".to_owned() });
    let of = |task: Document, aside| explain(&Facts { aside, ..facts(task, doc! {}) });
    let waiting = of(doc! {}, aside(-1));
    assert!(waiting.summary.starts_with("It is set aside since "), "{}", waiting.summary);
    assert!(waiting.summary.contains(": too large. "), "{}", waiting.summary);
    assert!(!waiting.gates[0].open);
    let changed_since = of(doc! { "history": [] }, aside(-9));
    assert!(changed_since.gates.iter().all(|gate| gate.name != "aside"));
    let ended = of(doc! { "status": -3 }, aside(-1));
    assert!(ended.summary.contains("nothing else could be done with it: too large"), "{}", ended.summary);
    let told = of(doc! { "status": -3, "history": [{ "note": "too large" }] }, aside(-1));
    assert!(told.gates.iter().all(|gate| gate.name != "aside"), "its history says it");
}

fn node(name: &str, fields: Document) -> crate::model::Node {
    let node = doc! {
        "_id": ObjectId::new(), "node": name, "timestamp": at(-1), "instance": "i", "state": "alive",
        "seen": at(-1), "lease_ms": 30_000, "plugins": ["My::Mail"], "serves": {},
    };
    bson::deserialize_from_document(with(node, fields)).unwrap()
}

fn perl_node(name: &str, seconds: i64) -> crate::model::Node {
    let node = doc! { "_id": ObjectId::new(), "node": name, "timestamp": at(seconds) };
    bson::deserialize_from_document(node).unwrap()
}

/// As somebody is told who may look at everything.
fn explain(facts: &Facts) -> Explanation {
    super::explain(facts, Reader::OfAll)
}

fn summary(facts: &Facts) -> String {
    explain(facts).summary
}

#[test]
fn a_task_that_nothing_keeps_waits_for_a_moment() {
    let explanation = explain(&facts(doc! {}, doc! {}));
    assert!(explanation.gates.iter().all(|gate| gate.open), "{explanation:?}");
    assert_eq!(
        explanation.summary,
        "Nothing keeps it from being claimed; a DEN should take it within seconds."
    );
    let names: Vec<&str> = explanation.gates.iter().map(|gate| gate.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "status",
            "queue",
            "queue_paused",
            "queue_plugin",
            "queue_threads",
            "queue_limit",
            "nodes_alive",
            "nodes_able",
            "node",
            "turn",
        ]
    );
}

#[test]
fn an_unknown_order_of_the_queue_is_told_and_keeps_nothing() {
    let explanation = explain(&facts(doc! {}, doc! { "sort": "weird" }));
    let gate = explanation.gates.iter().find(|gate| gate.name == "queue_sort").unwrap();
    assert!(gate.open && gate.text.contains("unknown order \"weird\""), "{gate:?}");
}

#[test]
fn the_status_may_keep_it() {
    let text = |task| summary(&facts(task, doc! { "max_attempts": 4 }));
    assert_eq!(
        text(doc! { "status": -7, "run_at": at(90) }),
        "The task is deferred until 2026-11-20 08:25:57 UTC (in 1 min 30 s)."
    );
    assert_eq!(
        text(doc! { "status": -7, "run_at": at(8), "failures": 2 }),
        "Failure 2 of 4; the next attempt follows after 2026-11-20 08:24:35 UTC (in 8 s)."
    );
    assert!(text(doc! { "status": -7, "run_at": at(-1) }).contains("which is past: a DEN queues it"));
    assert!(text(doc! { "status": -7 }).contains("a time that is not set"));
    assert_eq!(
        text(doc! { "status": -4, "history": [{ "note": "waits for parts" }] }),
        "The task is blocked (waits for parts): it waits until somebody queues it."
    );
    assert_eq!(
        text(doc! { "status": -42 }),
        "The task is held by its status -42: no DEN claims it until that is changed."
    );
}

#[test]
fn a_queued_task_in_the_name_of_a_node_is_claimed_by_none() {
    let of = |node: bson::Bson| explain(&facts(doc! { "node": node }, doc! {}));
    let lists = |nodes: &[bson::Bson]| bson::Bson::from(nodes.to_vec());
    for free in [bson::Bson::Null, (-1).into(), (-1.0).into(), lists(&["x".into(), bson::Bson::Null])] {
        assert!(of(free.clone()).gates.iter().all(|gate| gate.open), "{free}");
    }
    for taken in [1.5.into(), "n1".into(), "".into(), doc! { "$ref": "x" }.into(), lists(&[]), true.into()] {
        let told = of(taken);
        assert!(told.summary.starts_with("The task is queued, but its field node is "), "{told:?}");
    }
    let long = of("x".repeat(5_000).into()).summary;
    assert!(long.len() < 400, "{long}");
}

#[test]
fn what_no_process_can_have_is_told() {
    let lease = |task: Document| {
        let gates = explain(&facts(task, doc! {})).gates;
        gates.into_iter().find(|gate| gate.name == "lease").unwrap()
    };
    for node in [bson::Bson::Null, 5.into(), "n9".into()] {
        let claimed = lease(doc! { "status": -1, "node": node.clone() });
        assert!(!claimed.open && claimed.text.contains("queues it again within three leases"), "{claimed:?}");
        let running = lease(doc! { "status": 0, "node": node });
        assert!(!running.open && running.text.contains("orphans it within three leases"), "{running:?}");
    }
    let perls = lease(doc! { "status": 0, "node": "n1" });
    assert!(perls.open && perls.text.contains("renews no lease"), "{perls:?}");
}

fn relative(number: u8, status: Option<i64>) -> Relative {
    Relative {
        id: Some(TaskId(ObjectId::from_bytes([number; 12]))),
        queue: Some(QueueId(queue_id())),
        status: status.map(Status::from_code),
        node: None,
        since: None,
        is_queue_gone: false,
    }
}

#[test]
fn other_tasks_may_keep_it() {
    let task = |gate: &str| doc! { "status": -4, "gate": gate };
    let explanation = explain(&facts(task("key"), doc! {}));
    assert_eq!(explanation.summary, "The task is blocked: it is looked whether another task has its key.");
    let parents =
        vec![relative(1, Some(0)), Relative { id: None, ..relative(2, Some(-2)) }, relative(3, None)];
    let waits = Waits { parents, parents_left: 9, ..Waits::default() };
    let explanation = explain(&Facts { waits: waits.clone(), ..facts(task("after"), doc! {}) });
    assert_eq!(explanation.summary, "The task is blocked: it waits until 9 tasks succeed.");
    let texts: Vec<&str> = explanation.gates.iter().skip(1).take(4).map(|gate| gate.text.as_str()).collect();
    let expected = [
        "It comes after the task 010101010101010101010101, which is running.",
        "It comes after a task of another queue, which is queued.",
        "It comes after the task 030303030303030303030303, which no longer exists.",
        "It comes after 6 more tasks.",
    ];
    assert_eq!(texts, expected);
    let failed = Waits {
        parents: vec![relative(1, Some(2))],
        parents_left: 1,
        failed: AfterFailed::Wait,
        ..Waits::default()
    };
    let explanation = explain(&Facts { waits: failed, ..facts(task("after"), doc! {}) });
    assert_eq!(explanation.summary, "The task is blocked: it waits until 1 task succeeds.");
    assert!(
        explanation.gates[1].text.ends_with("is failed: it waits until that is tried again and succeeds.")
    );
    assert!(summary(&facts(task("new"), doc! {})).ends_with("a DEN looks within seconds what it waits for."));
    assert!(summary(&facts(task("odd"), doc! {})).ends_with("it waits until somebody queues it."));
}

#[test]
fn a_lock_may_keep_it() {
    let running = Relative { node: Some("n1".to_owned()), since: Some(at(-90)), ..relative(1, Some(0)) };
    let lock = LockWait {
        name: "db".to_owned(),
        mode: LockMode::Places(3),
        holders: vec![running, Relative { id: None, ..relative(2, Some(-2)) }],
        held_by: 3,
        before: 1,
    };
    let of = |lock: LockWait| {
        let task = doc! { "status": -4, "gate": "locks", "needs_lock": "db" };
        explain(&Facts { waits: Waits { lock: Some(lock), ..Waits::default() }, ..facts(task, doc! {}) })
    };
    let explanation = of(lock.clone());
    assert_eq!(explanation.summary, "The task is blocked: it waits for the lock db.");
    assert_eq!(
        explanation.gates[1].text,
        "It wants the lock db as one of 3 places, which is held by the task 010101010101010101010101 on n1 (running, \
         since 2026-11-20 08:22:57 UTC), a task of another queue (queued) and 1 more task."
    );
    assert_eq!(explanation.gates[2].text, "1 task waits for the lock db before it.");
    let next = of(LockWait { before: 0, holders: vec![], held_by: 0, mode: LockMode::Exclusive, ..lock });
    assert_eq!(next.gates[1].text, "It wants the lock db alone, which nobody has.");
    assert!(next.gates[2].open && next.gates[2].text == "It is the next to get the lock db.");
}

#[test]
fn the_queue_may_keep_it() {
    let text = |queue| summary(&facts(doc! {}, queue));
    assert_eq!(
        text(doc! { "paused": true, "reason": "moving house" }),
        "The queue mail is paused: moving house."
    );
    assert_eq!(text(doc! { "paused": true }), "The queue mail is paused.");
    assert_eq!(text(doc! { "plugin": bson::Bson::Null }), "The queue mail names no plugin.");
    assert!(
        text(doc! { "plugin": "no plugin" }).starts_with("The plugin of the queue mail cannot be used: ")
    );
    assert_eq!(text(doc! { "threads": 0 }), "The queue mail has 0 threads, so that none of its tasks run.");
    assert_eq!(
        text(doc! { "threads": bson::Bson::Null }),
        "The queue mail has no threads set, so that none of its tasks run."
    );
    let gone = Facts { queue: None, ..facts(doc! {}, doc! {}) };
    assert_eq!(summary(&gone), "The queue with the id 6b0003bb686c8275d70dc2f1 is gone.");
}

#[test]
fn a_full_queue_tells_who_fills_it() {
    let share = |node: &str, tasks, of_others| Share { node: node.to_owned(), tasks, of_others };
    let full = Facts { shares: vec![share("n1", 2, 0)], ..facts(doc! {}, doc! {}) };
    assert_eq!(summary(&full), "The queue is full: 2 of 2 threads are in use, 2 on n1.");
    let shares = vec![share("n1", 2, 1), share("old", 1, 1)];
    let mixed = Facts { shares, ..facts(doc! {}, doc! {}) };
    assert_eq!(
        summary(&mixed),
        "The queue is full: 3 of 2 threads are in use, 2 on n1 (1 by another program) and 1 on \
         old (by another program)."
    );
    let half = Facts { shares: vec![share("n1", 1, 0)], ..facts(doc! {}, doc! {}) };
    assert!(
        explain(&half)
            .gates
            .iter()
            .any(|gate| gate.open && gate.text == "1 of 2 threads of the queue are in use, 1 on n1.")
    );
}

#[test]
fn a_fair_queue_tells_when_it_is_the_turn_of_its_group() {
    let text = |group: Option<&str>, turns, tasks, full| {
        let task = group.map_or_else(Document::new, |group| doc! { "group": group });
        let ahead = Ahead::InGroup(Before { turns, tasks, full });
        let explanation = explain(&Facts { ahead, ..facts(task, doc! { "policy": "fair" }) });
        let turn = explanation.gates.last().unwrap();
        assert_eq!(turn.name, "turn");
        (turn.open, turn.text.clone())
    };
    let next = "The next turn is that of its group acme/ann, and this task is the next of it.";
    assert_eq!(text(Some("acme/ann"), Some(0), 0, None), (true, next.to_owned()));
    let later = "7 turns come before that of its group ann, and 1 task of it comes before this one.";
    assert_eq!(text(Some("ann"), Some(7), 1, None), (false, later.to_owned()));
    let many = "Too many groups wait to tell when it is the turn of the group of the tasks without one, and 1,000+ \
                tasks of it come before this one.";
    assert_eq!(text(None, None, 1_000, None), (false, many.to_owned()));
    let full = "Of its group ann, 2 tasks may run at once, and as many are claimed or running.";
    assert_eq!(text(Some("ann"), Some(0), 0, Some(2)), (false, full.to_owned()));
}

#[test]
fn a_rate_tells_when_it_allows_the_next_start() {
    let standing = |allowed, next: Option<u64>| Standing {
        rate: Rate { n: 10, per: 60, burst: 3 },
        allowed,
        next: next.map(Duration::from_millis),
    };
    let at = |rate, group_rate| {
        let task = doc! { "group": "acme/anna" };
        explain(&Facts { rate, group_rate, ..facts(task, doc! {}) })
    };
    let closed = at(Some(standing(0, Some(2_001))), None);
    assert_eq!(closed.summary, "The rate of the queue mail, 10 in 60 s, allows the next start in 3 s.");
    let open = at(Some(standing(3, None)), Some(standing(1, None)));
    assert!(open.gates.iter().all(|gate| gate.open), "{open:?}");
    let texts: Vec<&str> = open.gates[6..8].iter().map(|gate| gate.text.as_str()).collect();
    assert_eq!(texts[0], "The rate of the queue mail, 10 in 60 s, allows 3 starts now.");
    assert_eq!(texts[1], "The rate of the group acme/anna, 10 in 60 s, allows 1 start now.");
    let group = at(Some(standing(3, None)), Some(standing(0, Some(90_000))));
    assert_eq!(
        group.summary,
        "The rate of the group acme/anna, 10 in 60 s, allows the next start in 1 min 30 s."
    );
}

#[test]
fn nodes_may_be_missing_or_unable() {
    let text = |nodes| summary(&Facts { nodes, ..facts(doc! {}, doc! {}) });
    assert_eq!(text(vec![]), "No DEN is alive, and none has been seen yet.");
    assert_eq!(
        text(vec![node("n1", doc! { "seen": at(-31), "timestamp": at(-31) }), perl_node("old", -61)]),
        "No DEN is alive: the last one seen was that of n1 at 2026-11-20 08:23:56 UTC."
    );
    let stopped = node("n1", doc! { "seen": bson::Bson::Null, "state": "stopped" });
    assert!(text(vec![stopped]).starts_with("No DEN is alive"));
    assert_eq!(
        text(vec![node("n1", doc! { "draining": true })]),
        "No node can claim it. n1: it is draining."
    );
    assert_eq!(
        text(vec![node("n1", doc! { "plugins": [], "serves": { "ignored": [queue_id()] } })]),
        "No node can claim it. n1: its configuration (ignorequeues) ignores the queue and it \
         does not have the plugin My::Mail."
    );
    assert_eq!(
        text(vec![node("n1", doc! { "serves": { "active": [] } }), node("n2", doc! { "maxthreads": 0 })]),
        "No node can claim it. n1: its configuration (activequeues) leaves the queue out; n2: its maxthreads is 0."
    );
    let problem =
        |problem: Document| text(vec![node("n1", doc! { "plugins": [], "plugin_problems": [problem] })]);
    assert_eq!(
        problem(doc! { "plugin": "My::Mail", "why": "the engine http is not enabled on this node" }),
        "No node can claim it. n1: it cannot run the plugin My::Mail: the engine http is not enabled on this node."
    );
    assert_eq!(
        problem(doc! { "why": "/p/plugin.json: EOF" }),
        "No node can claim it. n1: it does not have the plugin My::Mail (/p/plugin.json: EOF)."
    );
    assert!(problem(doc! { "plugin": "Other", "why": "x" }).ends_with("does not have the plugin My::Mail."));
    let without = |name: &str| node(name, doc! { "plugins": [] });
    let nodes = vec![without("n1"), node("n2", doc! { "maxthreads": 0 }), without("n3")];
    assert_eq!(
        text(nodes.clone()),
        "No node can claim it. 2 nodes do not have the plugin My::Mail: n1, n3; n2: its maxthreads is 0."
    );
    let explained = explain(&Facts { nodes, ..facts(doc! {}, doc! {}) });
    let expected =
        ["2 nodes do not have the plugin My::Mail: n1, n3.", "n2 cannot claim it: its maxthreads is 0."];
    assert_eq!(explained.unable, expected);
    assert_eq!(explained.gates.iter().filter(|gate| gate.name == "node").count(), 3, "one for each");
    let many = (1..=22).map(|number| without(&format!("n{number}"))).collect();
    assert!(text(many).ends_with(", n19, n20 and 2 more."));
    let idle = |name: &str| node(name, doc! { "maxthreads": 0 });
    assert_eq!(
        text(vec![idle("a"), idle("b")]),
        "No node can claim it. 2 nodes (a, b): its maxthreads is 0."
    );
    let able = text(vec![node("n1", doc! { "draining": true }), node("n2", doc! {})]);
    assert!(able.starts_with("Nothing keeps it"), "{able}");
    let busy = HashMap::from([("n1".to_owned(), 3)]);
    let nodes = vec![node("n1", doc! { "maxthreads": 3 })];
    let full = Facts { busy, nodes, ..facts(doc! {}, doc! {}) };
    assert_eq!(summary(&full), "No node can claim it. n1: 3 of its 3 maxthreads are taken.");
}

#[test]
fn who_may_look_at_some_queues_is_told_nothing_of_nodes() {
    let told = |facts: &Facts| {
        let told = super::explain(facts, Reader::OfQueue);
        let texts: Vec<String> = told.gates.iter().map(|gate| gate.text.clone()).collect();
        let all = format!("{}\n{}", told.summary, texts.join("\n"));
        assert!(!["n1", "n2", "maxthreads", "draining"].iter().any(|word| all.contains(word)), "{all}");
        (told.summary, texts)
    };
    let able = Facts { nodes: vec![node("n1", doc! {}), node("n2", doc! {})], ..facts(doc! {}, doc! {}) };
    let (summary, texts) = told(&able);
    assert!(summary.starts_with("Nothing keeps it from being claimed"), "{summary}");
    assert!(texts.contains(&"A node can claim it.".to_owned()), "{texts:?}");

    let nodes = vec![node("n1", doc! { "draining": true }), node("n2", doc! { "maxthreads": 3 })];
    let busy = HashMap::from([("n2".to_owned(), 3)]);
    let (summary, texts) = told(&Facts { nodes, busy, ..facts(doc! {}, doc! {}) });
    assert_eq!(summary, "No node can claim it: whoever may look at all queues is told why.");
    assert!(texts.contains(&"At least one DEN is alive.".to_owned()), "{texts:?}");

    let gone = Facts { nodes: vec![perl_node("n1", -61)], ..facts(doc! {}, doc! {}) };
    assert_eq!(told(&gone).0, "No DEN is alive.");
    let shares = vec![Share { node: "n1".to_owned(), tasks: 2, of_others: 1 }];
    let full = Facts { shares, ..facts(doc! {}, doc! {}) };
    assert_eq!(told(&full).0, "The queue is full: 2 of 2 threads are in use.");
}

#[test]
fn whoever_sees_a_task_is_told_its_own_node() {
    let task = doc! { "status": 0, "node": "n1", "started": at(-65), "lease_until": at(24) };
    let running = facts(task, doc! {});
    assert_eq!(super::explain(&running, Reader::OfQueue), explain(&running));
}

#[test]
fn of_a_node_of_perl_nothing_is_guessed() {
    let explanation = explain(&Facts { nodes: vec![perl_node("old", -10)], ..facts(doc! {}, doc! {}) });
    let gate = explanation.gates.iter().find(|gate| gate.name == "node").unwrap();
    assert!(gate.open && gate.text.contains("is not known"), "{gate:?}");
}

#[test]
fn others_may_be_ahead() {
    let text = |ahead| summary(&Facts { ahead, ..facts(doc! {}, doc! {}) });
    assert_eq!(text(Ahead::Tasks(1)), "1 task is ahead of it in its queue.");
    assert_eq!(text(Ahead::Tasks(12)), "12 tasks are ahead of it in its queue.");
    assert_eq!(text(Ahead::Tasks(1_000)), "1,000+ tasks are ahead of it in its queue.");
    let unordered = explain(&Facts { ahead: Ahead::Unordered(3), ..facts(doc! {}, doc! {}) });
    assert!(unordered.gates.last().unwrap().text.contains("and 3 other tasks in it wait too"));
}

#[test]
fn a_held_task_tells_which_rule_holds_it() {
    let held = |held_by| {
        let task = doc! { "status": -4, "gate": "admission" };
        explain(&Facts { held_by, ..facts(task, doc! {}) }).summary
    };
    let rule = |scope, reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        Some(Rule { scope, action: Action::Pause, reason, by: "anna".into(), at: at(-60) })
    };
    assert_eq!(
        held(rule(Scope::Tenant("acme".into()), Some("upgrade"))),
        "The task is blocked: it is held until the rule of admission for the tenant acme is lifted (upgrade)."
    );
    assert!(held(rule(Scope::All, None)).ends_with("for all tasks is lifted."));
    assert!(held(None).ends_with("so it goes on within seconds."));
}

#[test]
fn a_claimed_task_waits_for_its_runner() {
    let claimed = |fields| explain(&facts(with(doc! { "status": -1, "node": "n1" }, fields), doc! {}));
    let ours = claimed(doc! { "lease_until": at(20) });
    assert_eq!(
        ours.summary,
        "n1 has claimed it since 2026-11-20 08:24:22 UTC (5 s); its runner has not started it yet."
    );
    assert_eq!(ours.gates[1].text, "Its claim holds until 2026-11-20 08:24:47 UTC; then it is queued again.");
    assert!(claimed(doc! {}).gates[1].text.contains("within 5 minutes"));
    assert!(!claimed(doc! { "lease_until": at(-1) }).gates[1].open);
}

#[test]
fn a_running_task_tells_where_and_how_it_is() {
    let running = |fields| explain(&facts(with(doc! { "status": 0, "node": "n1" }, fields), doc! {}));
    let ours = running(doc! { "started": at(-65), "attempt": 2, "lease_until": at(24) });
    assert_eq!(ours.summary, "It runs on n1 since 2026-11-20 08:23:22 UTC (1 min 5 s), as attempt 2.");
    assert_eq!(
        ours.gates[1].text,
        "Its runner gave its last sign of life 6 s ago; its lease holds until 2026-11-20 08:24:51 UTC."
    );
    assert!(running(doc! {}).gates[1].text.ends_with("whether it still lives is not known."));
    let lost = running(doc! { "lease_until": at(-3) });
    assert!(lost.summary.starts_with("The lease of its runner ran out at"), "{lost:?}");
    let wish = doc! { "cancel": { "by": "me", "at": at(-2), "reason": "wrong" }, "lease_until": at(20) };
    assert_eq!(
        running(wish).summary,
        "Its end was asked for by me at 2026-11-20 08:24:25 UTC (wrong); its runner ends it."
    );
}

#[test]
fn a_task_of_a_web_service_tells_when_that_was_heard_of() {
    let of = |external: Document| {
        let external = with(doc! { "detached": true, "since": at(-300), "heard": at(-70) }, external);
        explain(&facts(
            doc! { "status": 0, "node": "n1", "attempt": 2, "lease_until": at(3_530), "external": external },
            doc! {},
        ))
    };
    let quiet = of(doc! {});
    assert_eq!(
        quiet.summary,
        "It waits for its web service since 2026-11-20 08:19:27 UTC (5 min 0 s), as attempt 2; no runner is occupied."
    );
    assert_eq!(
        quiet.gates[1].text,
        "Nothing was heard of it since it has taken the task at 2026-11-20 08:23:17 UTC, 1 min 10 s ago."
    );
    assert!(quiet.gates[2].text.starts_with("If nothing is heard of it until 2026-11-20 09:23:17 UTC"));
    let called = of(doc! { "called": true, "until": at(3_530) });
    assert_eq!(called.gates[1].text, "It was last heard of at 2026-11-20 08:23:17 UTC, 1 min 10 s ago.");
    assert!(called.gates[2].text.starts_with("Whatever is heard of it, its time is over at"));
    assert_eq!(of(doc! { "end": { "status": 1 } }).gates.len(), 1);
}

#[test]
fn an_ended_task_tells_how() {
    let text = |task| summary(&facts(with(doc! { "node": "n1" }, task), doc! {}));
    assert_eq!(text(doc! { "status": 1 }), "It succeeded on n1 at 2026-11-20 08:24:22 UTC.");
    assert_eq!(
        text(doc! { "status": -6, "history": [{ "note": "its lease ran out" }] }),
        "Its runner was lost on n1 at 2026-11-20 08:24:22 UTC: its lease ran out."
    );
    assert!(text(doc! { "status": 17 }).starts_with("It ended with the status 17 of its plugin on n1"));
    let failed = doc! { "status": 2, "exit": { "signal": 9, "oom": true }, "failures": 1, "max_attempts": 2 };
    let failed = explain(&facts(failed, doc! {}));
    let texts: Vec<&str> = failed.gates.iter().map(|gate| gate.text.as_str()).collect();
    assert_eq!(texts[1], "Its plugin was ended by the signal 9, for want of memory.");
    assert_eq!(texts[2], "It has failed 2 times; at most 2 are allowed.");
    for (status, reason, times) in [
        (-3, "timeout", "3 times"),
        (-3, "silence", "3 times"),
        (-3, "cancel", "2 times"),
        (-6, "lease", "3 times"),
        (17, "exit", "2 times"),
    ] {
        let exit = doc! { "signal": 15, "reason": reason };
        let task = doc! { "status": status, "exit": exit, "failures": 2, "max_attempts": 3 };
        let gates = explain(&facts(task, doc! {})).gates;
        let told = gates.iter().find(|gate| gate.name == "attempts").map(|gate| gate.text.as_str());
        assert_eq!(
            told,
            Some(&*format!("It has failed {times}; at most 3 are allowed.")),
            "{status} {reason}"
        );
    }
    let limited = doc! { "status": 2, "exit": { "signal": 24, "oom": false, "limit": "cpu_seconds" } };
    let limited = explain(&facts(limited, doc! {}));
    assert_eq!(limited.gates[1].text, "Its plugin was ended by the signal 24, by its limit cpu_seconds.");
}

#[test]
fn a_node_that_has_its_share_leaves_the_rest_to_others_for_a_moment() {
    let mut facts = facts(doc! {}, doc! { "threads": 10 });
    facts.nodes.push(node("n2", doc! {}));
    let share = |node: &str, tasks| Share { node: node.to_owned(), tasks, of_others: 0 };
    let of_n1 = |facts: &Facts| {
        let gates = explain(facts).gates.into_iter().filter(|gate| gate.name == "node" && gate.open);
        gates.map(|gate| gate.text).find(|text| text.starts_with("n1")).unwrap()
    };
    facts.shares = vec![share("n1", 5), share("n2", 4)];
    assert_eq!(
        of_n1(&facts),
        "n1 can claim it, but has its share of the slots, 5: those that are free are left for other nodes for up to 1 s."
    );
    facts.shares = vec![share("n1", 4), share("n2", 4)];
    assert_eq!(of_n1(&facts), "n1 can claim it.");
    facts.shares = vec![share("n1", 5), share("n2", 4)];
    facts.nodes[1] = node("n2", doc! { "plugins": ["Other"] });
    assert_eq!(of_n1(&facts), "n1 can claim it.", "nobody else could take it");
}

#[test]
fn a_queue_that_is_for_other_nodes_says_which() {
    let mut facts = facts(doc! {}, doc! { "nodes": { "labels": { "gpu": "yes" } } });
    assert_eq!(summary(&facts), "No node can claim it. n1: the queue is for other nodes (labels gpu=yes).");
    facts.nodes.push(node("n2", doc! { "labels": { "gpu": "yes" } }));
    assert!(explain(&facts).gates.iter().any(|gate| gate.name == "node" && gate.text == "n2 can claim it."));
    facts.nodes[1] = perl_node("old", -1);
    assert!(
        explain(&facts)
            .gates
            .iter()
            .any(|gate| gate.name == "node" && gate.open && gate.text.starts_with("old may"))
    );
}

#[test]
fn times_are_short() {
    let at = |seconds: i64| DateTime::from_millis(1_795_163_067_344 + seconds * 1000);
    assert_eq!(moment(at(0)), "2026-11-20 08:24:27 UTC");
    let spans = [(-5, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3_700, "1 h 1 min"), (90_000, "1 day 1 h")];
    for (seconds, text) in spans {
        assert_eq!(span_until(at(0), at(seconds)), text);
    }
    assert_eq!(span_until(at(0), at(200_000)), "2 days 7 h");
}

#[test]
fn lists_and_numbers_read_as_sentences() {
    let names = |names: &[&str]| list(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(names(&["a"]), "a");
    assert_eq!(names(&["a", "b", "c"]), "a, b and c");
    assert_eq!((counted(1, "task"), counted(0, "task")), ("1 task".to_owned(), "0 tasks".to_owned()));
}

mod heads;
