//! What somebody should look at, found from what the overview knows anyway. Pure.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{DateTime, Document};
use disbatch_core::model::Queue;
use disbatch_core::node::Stats;
use disbatch_core::series::Ended;

use super::facts::{Facts, QueueFacts};
use super::throughput::sum;
use crate::ui::lacking::Lacking;
use crate::ui::names::short;
use crate::ui::node_row::place;
use crate::ui::node_state::NodeState;
use crate::ui::node_work::Load;
use crate::ui::parts::{cut, grouped, rough};
use crate::ui::plain;
use crate::ui::queue_state::{rate_takes, rate_words};

/// A task that waits for so long while none of its queue runs is stuck, unless some came to their end meanwhile, or the rate of the
/// queue allows none.
const STUCK_SECONDS: u64 = 300;

/// The same in minutes, and the one that it is.
const STUCK_MINUTES: usize = 6;

/// Failures of the last minutes, so many, are compared with those before.
const LATELY: usize = 15;

/// From so many ends before that on, it is known how many failures are usual.
const USUAL: u64 = 20;

/// From so many failures on, and from this part of what ended, it matters that there are several times as many as before.
const UNUSUAL: (u64, u64, u64) = (5, 10, 4);

/// From so many ends on within the last hour, it matters when half of them are failures.
const MANY: u64 = 10;

/// So many of a kind are told one by one.
const TOLD: usize = 5;

#[derive(Debug, Template)]
#[template(path = "overview/attention.html")]
pub struct Attention {
    notices: Vec<Notice>,
}

impl HtmlSafe for Attention {}

/// One thing.
#[derive(Debug, PartialEq, Eq)]
struct Notice {
    /// Whether it is as somebody wanted it.
    meant: bool,
    text: String,
    /// Where to go on.
    link: Option<(String, &'static str)>,
}

impl Attention {
    /// What there is.
    pub fn of(facts: &Facts) -> Self {
        let nodes: Vec<(NodeState, &Document)> =
            facts.nodes.iter().map(|node| (NodeState::of(node, &facts.now), node)).collect();
        let mut notices = of_nodes(&nodes);
        notices.extend(overloaded(&nodes));
        notices.extend(facts.queues.iter().filter_map(asks).take(4 * TOLD));
        let of_queues: Vec<Notice> =
            facts.queues.iter().filter_map(|queue| of_queue(queue, &nodes, facts.now.server)).collect();
        let more = of_queues.len().saturating_sub(4 * TOLD);
        notices.extend(of_queues.into_iter().take(4 * TOLD));
        if more > 0 {
            notices.push(Notice { meant: false, text: format!("And {more} further queues."), link: None });
        }
        if nodes.iter().all(|(state, _)| !state.is_up()) && facts.queues.iter().any(|q| q.oldest.is_some()) {
            let text = "No node is alive: nothing runs the tasks that wait.".to_owned();
            notices.insert(0, Notice { meant: false, text, link: None });
        }
        // What nobody wanted comes first.
        notices.sort_by_key(|notice| notice.meant);
        Self { notices }
    }
}

fn of_nodes(nodes: &[(NodeState, &Document)]) -> Vec<Notice> {
    let dead = |(state, _): &&(NodeState, &Document)| matches!(state, NodeState::Dead | NodeState::Gone);
    let name = |(_, node): &(NodeState, &Document)| cut(&plain(node.get("node")), 80);
    let names: Vec<String> = nodes.iter().filter(dead).map(name).collect();
    let link = Some(("/nodes".to_owned(), "Nodes"));
    if names.len() > TOLD {
        let text = format!("{} nodes have not been heard of: {}, …", names.len(), names[..TOLD].join(", "));
        return vec![Notice { meant: false, text, link }];
    }
    let notice = |name: &String| Notice {
        meant: false,
        text: format!("Node {name} has not been heard of for a while: it may be dead or cut off."),
        link: link.clone(),
    };
    names.iter().map(notice).collect()
}

/// Nodes whose processors have far too much to do.
fn overloaded(nodes: &[(NodeState, &Document)]) -> Vec<Notice> {
    let notice = |(state, node): &(NodeState, &Document)| {
        let Stats { load, cpus, .. } = Stats::of_node(node);
        let load = Load::of(load, cpus);
        (state.is_up() && load.is_far_too_high()).then(|| Notice {
            meant: false,
            text: format!(
                "The load of node {} is {} processors.",
                cut(&plain(node.get("node")), 80),
                load.words()
            ),
            link: place(node).map(|place| (place, "The node")),
        })
    };
    nodes.iter().filter_map(notice).take(TOLD).collect()
}

/// That somebody is to answer what tasks of a queue have asked.
fn asks(facts: &QueueFacts) -> Option<Notice> {
    let ((count, first), name) = (facts.asks?, short(&facts.queue));
    let text = match count {
        1 => format!("A task of {name} waits for an answer."),
        count => format!("{} tasks of {name} wait for an answer.", grouped(count)),
    };
    Some(Notice { meant: false, text, link: Some((format!("/tasks/{first}"), "What it asks")) })
}

/// What is wrong with a queue in which tasks wait, or most of whose tasks fail. The first thing only.
fn of_queue(facts: &QueueFacts, nodes: &[(NodeState, &Document)], now: DateTime) -> Option<Notice> {
    let queue = &facts.queue;
    let name = short(queue);
    let notice = |meant, text, link| Some(Notice { meant, text, link });
    let settings = || Some((format!("/queues/{}", queue.id), "The queue"));
    let tasks = |status: &str| Some((format!("/tasks?queue={}&status={status}", queue.id), "The tasks"));
    if let Some(since) = facts.oldest {
        let waited = now.timestamp_millis().saturating_sub(since.timestamp_millis()) / 1000;
        let waited = u64::try_from(waited).unwrap_or(0);
        if queue.is_paused() {
            return notice(true, format!("{name} is paused, and tasks wait in it."), settings());
        }
        if queue.thread_limit() == 0 {
            return notice(false, format!("Tasks wait in {name}, whose threads are 0."), settings());
        }
        if let Some(text) = lacks(queue, &name, nodes) {
            return notice(false, text, settings());
        }
        if let Some(text) = by_rate(facts, &name).filter(|_| waited > STUCK_SECONDS) {
            return notice(true, text, tasks("-2"));
        }
        let last = facts.hour.iter().rev().take(STUCK_MINUTES);
        if facts.running == 0 && waited > STUCK_SECONDS && sum(last).total() == 0 {
            let text = format!("Nothing of {name} runs, though a task has waited for {}.", rough(waited));
            return notice(false, text, tasks("-2"));
        }
    }
    let ended = facts.last_hour();
    if ended.total() >= MANY && ended.failed >= ended.total().div_ceil(2) {
        let (failed, all) = (grouped(ended.failed), grouped(ended.total()));
        let text = format!("{failed} of the {all} tasks of {name} that ended within the last hour failed.");
        return notice(false, text, tasks("2"));
    }
    unusual(&facts.hour).and_then(|(lately, before)| {
        let (failed, all) = (grouped(lately.failed), grouped(lately.total()));
        let text = format!(
            "{failed} of the {all} tasks of {name} that ended within the last {LATELY} minutes failed; before, {} of {}.",
            grouped(before.failed),
            grouped(before.total())
        );
        notice(false, text, tasks("2"))
    })
}

/// What a queue comes to whose tasks wait for nothing but its rate.
fn by_rate(facts: &QueueFacts, name: &str) -> Option<String> {
    let work = facts.work();
    let rate = work.rate.filter(|_| work.waits_for_rate() && work.running < facts.queue.thread_limit())?.rate;
    let takes = rough(rate_takes(&rate, work.waiting));
    Some(format!("{name}: {} wait, {}, empty in {takes}.", facts.waiting.words(), rate_words(&rate)))
}

/// What ended lately and what ended before within the hour, if unusually much of it failed.
fn unusual(hour: &[Ended]) -> Option<(Ended, Ended)> {
    let (before, lately) = hour.split_at_checked(hour.len().checked_sub(LATELY)?)?;
    let (before, lately) = (sum(before), sum(lately));
    let (least, part, times) = UNUSUAL;
    let is_much = lately.failed >= least && lately.failed.saturating_mul(part) >= lately.total();
    let share = |ended: Ended, of: Ended| u128::from(ended.failed) * u128::from(of.total());
    let is_more = share(lately, before) >= u128::from(times) * share(before, lately);
    (is_much && before.total() >= USUAL && is_more).then_some((lately, before))
}

/// Why no node that is alive can run the queue's tasks, if that is known.
fn lacks(queue: &Queue, name: &str, nodes: &[(NodeState, &Document)]) -> Option<String> {
    match Lacking::of(queue, nodes.iter().copied())? {
        Lacking::Plugin | Lacking::UsablePlugin(_) => {
            Some(format!("Tasks wait in {name}, which has no usable plugin."))
        }
        Lacking::NodeWith(plugin) => {
            Some(format!("Tasks wait in {name}, and no node that is alive has its plugin {plugin}."))
        }
        Lacking::Node => None, // That is said once for all queues.
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::counters::count::Amount;
    use disbatch_core::rate::{Rate, Standing};

    use super::*;
    use crate::ui::node_state::Now;
    use crate::ui::tally::Tally;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn queue(fields: Document) -> QueueFacts {
        let mut document = doc! { "_id": ObjectId::new(), "name": "q", "plugin": "P", "threads": 1 };
        document.extend(fields);
        QueueFacts {
            queue: bson::deserialize_from_document(document).unwrap(),
            running: 0,
            waiting: Tally::default(),
            finished: Tally::default(),
            failed: Tally::default(),
            hour: Vec::new(),
            oldest: Some(DateTime::from_millis(NOW.timestamp_millis() - 1000)),
            blocked: None,
            asks: None,
            rate: None,
            intake: None,
            lacks: None,
        }
    }

    fn node(fields: Document) -> Document {
        let mut node = doc! {
            "_id": ObjectId::new(), "node": "n", "instance": "i", "seen": NOW, "lease_ms": 30_000, "plugins": ["P"],
        };
        node.extend(fields);
        node
    }

    fn texts(queues: Vec<QueueFacts>, nodes: Vec<Document>) -> Vec<String> {
        let facts = Facts { queues, nodes, now: Now { server: NOW, host: NOW } };
        Attention::of(&facts).notices.into_iter().map(|notice| notice.text).collect()
    }

    #[test]
    fn all_is_well_while_tasks_run_or_wait_for_a_moment() {
        let mut idle = queue(doc! { "plugin": "Nobody::Has::It", "paused": true });
        idle.oldest = None;
        let mut long = queue(doc! {});
        (long.oldest, long.running) = (Some(DateTime::from_millis(0)), 1);
        assert_eq!(texts(vec![queue(doc! {}), idle, long], vec![node(doc! {})]), [""; 0]);
        assert_eq!(texts(vec![], vec![]), [""; 0]);
        let perl = doc! { "_id": ObjectId::new(), "node": "perl", "timestamp": NOW };
        assert_eq!(texts(vec![queue(doc! {})], vec![perl]), [""; 0], "what it has is not known");
    }

    #[test]
    fn each_queue_says_what_keeps_its_tasks_waiting() {
        let told = |queue| texts(vec![queue], vec![node(doc! {})]).join(" ");
        assert_eq!(told(queue(doc! { "paused": true })), "q is paused, and tasks wait in it.");
        assert_eq!(told(queue(doc! { "threads": 0 })), "Tasks wait in q, whose threads are 0.");
        let other = told(queue(doc! { "plugin": "Other" }));
        assert_eq!(other, "Tasks wait in q, and no node that is alive has its plugin Other.");
        assert_eq!(
            told(queue(doc! { "plugin": "no; name" })),
            "Tasks wait in q, which has no usable plugin."
        );
        let mut stuck = queue(doc! { "name": "<b>" });
        stuck.oldest = Some(DateTime::from_millis(NOW.timestamp_millis() - 7_300_000));
        assert_eq!(told(stuck), "Nothing of <b> runs, though a task has waited for 2 h.");
        let mut failing = queue(doc! {});
        (failing.oldest, failing.hour) = (None, vec![Ended { succeeded: 4, failed: 3, other: 0 }; 2]);
        assert_eq!(told(failing), "");
        let mut failing = queue(doc! {});
        failing.hour = vec![Ended { succeeded: 900, failed: 1000, other: 0 }; 2];
        assert_eq!(told(failing), "2,000 of the 3,800 tasks of q that ended within the last hour failed.");
    }

    #[test]
    fn who_waits_for_an_answer_needs_somebody() {
        let mut asking = queue(doc! {});
        let first: disbatch_core::model::TaskId = "6b0003bb686c8275d8013333".parse().unwrap();
        asking.asks = Some((1, first));
        let Notice { text, link, .. } = asks(&asking).unwrap();
        assert_eq!(text, "A task of q waits for an answer.");
        assert_eq!(link, Some(("/tasks/6b0003bb686c8275d8013333".to_owned(), "What it asks")));
        asking.asks = Some((1_200, first));
        assert_eq!(texts(vec![asking], vec![node(doc! {})]), ["1,200 tasks of q wait for an answer."]);
    }

    #[test]
    fn a_queue_that_does_as_it_is_told_is_no_alarm() {
        let told = |queue| texts(vec![queue], vec![node(doc! {})]).join(" ");
        let waiting = || {
            let mut waiting = queue(doc! {});
            waiting.oldest = Some(DateTime::from_millis(NOW.timestamp_millis() - 1_080_000));
            waiting.waiting = Tally::new(vec![-2], Amount::Exactly(19));
            waiting
        };
        let mut limited = waiting();
        let rate = Rate { n: 60, per: 3600, burst: 1 };
        limited.rate = Some(Standing { rate, allowed: 0, next: None });
        assert_eq!(told(limited), "q: 19 wait, 60 an hour, empty in 19 min.");
        let mut at_work = waiting();
        at_work.hour = vec![Ended::default(); 60];
        at_work.hour[57] = Ended { succeeded: 1, ..Ended::default() };
        assert_eq!(told(at_work), "");
        let mut stuck = waiting();
        stuck.hour = vec![Ended::default(); 60];
        stuck.hour[50] = Ended { succeeded: 1, ..Ended::default() };
        stuck.rate = Some(Standing { rate, allowed: 1, next: None });
        assert!(told(stuck).starts_with("Nothing of q runs"));
    }

    #[test]
    fn failures_are_told_that_are_unusual() {
        let of = |before: Ended, lately: Ended| {
            let mut failing = queue(doc! {});
            (failing.oldest, failing.hour) = (None, vec![Ended::default(); 60]);
            (failing.hour[3], failing.hour[58]) = (before, lately);
            texts(vec![failing], vec![node(doc! {})]).join(" ")
        };
        let ended = |succeeded, failed| Ended { succeeded, failed, other: 0 };
        assert_eq!(
            of(ended(99, 1), ended(28, 12)),
            "12 of the 40 tasks of q that ended within the last 15 minutes failed; before, 1 of 100."
        );
        for (before, lately) in [
            (ended(80, 20), ended(28, 12)),
            (ended(10, 0), ended(28, 12)),
            (ended(99, 1), ended(96, 4)),
            (ended(990, 10), ended(900, 90)),
            (ended(0, 0), ended(0, 0)),
        ] {
            assert_eq!(of(before, lately), "", "{before:?} {lately:?}");
        }
    }

    #[test]
    fn nodes_that_are_gone_come_first() {
        let dead = |name: String| node(doc! { "node": name, "seen": DateTime::from_millis(0) });
        let told = texts(vec![queue(doc! { "paused": true })], vec![dead("a".into())]);
        assert_eq!(told.len(), 3);
        assert!(told[0].starts_with("No node is alive") && told[1].starts_with("Node a"), "{told:?}");
        let many = (0..9).map(|number| dead(format!("n{number}"))).collect();
        assert_eq!(texts(vec![], many), ["9 nodes have not been heard of: n0, n1, n2, n3, n4, …"]);
    }

    #[test]
    fn a_node_with_far_too_much_to_do_is_told() {
        let loaded = |load: f64| node(doc! { "stats": { "load": load, "cpus": 2 } });
        let told = texts(vec![], vec![loaded(4.0), loaded(9.2)]);
        assert_eq!(told, ["The load of node n is 9.20 of 2 processors."]);
    }

    #[test]
    fn names_are_shown_as_text() {
        let facts = Facts {
            queues: vec![queue(doc! { "name": "<script>\"'".repeat(1000), "paused": true })],
            nodes: vec![node(doc! {})],
            now: Now { server: NOW, host: NOW },
        };
        let html = Attention::of(&facts).render().unwrap();
        assert!(html.contains("&#60;script&#62;&#34;&#39;") && !html.contains("<script"), "{html}");
        assert!(html.contains('…') && html.len() < 2000, "a notice stays short: {html}");
        let none = Attention { notices: Vec::new() }.render().unwrap();
        assert!(none.contains("Nothing needs attention."), "{none}");
    }
}
