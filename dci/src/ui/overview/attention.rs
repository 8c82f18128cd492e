//! What somebody should look at, found from what the overview knows anyway. Pure.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{DateTime, Document};
use disbatch_core::node::{Stats, stats_of};
use disbatch_core::series::Ended;
use disbatch_values::words;

use super::facts::{Facts, QueueFacts};
use super::throughput::sum;
use crate::ui::names::short;
use crate::ui::node_work::Load;
use crate::ui::nodes::{NodeState, place};
use crate::ui::parts::{cut, grouped, rough};
use crate::ui::plain;
use crate::ui::queue_state::{Lacking, lacking, rate_takes, rate_words};

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

#[derive(Debug, Template)]
#[template(path = "overview/attention.html")]
pub struct Attention {
    notices: Vec<Notice>,
}

impl HtmlSafe for Attention {}

impl Attention {
    pub fn of(facts: &Facts) -> Self {
        let nodes: Vec<(NodeState, &Document)> =
            facts.nodes.iter().map(|node| (NodeState::of(node, &facts.now), node)).collect();
        let mut alarms: Vec<Alarm> = nodes.iter().filter_map(silent).collect();
        alarms.extend(nodes.iter().filter_map(overloaded));
        alarms.extend(facts.queues.iter().filter_map(asks));
        alarms.extend(facts.queues.iter().filter_map(|queue| of_queue(queue, &nodes, facts.now.server)));
        let mut notices = Notice::all(alarms);
        let some = |is: fn(NodeState) -> bool| nodes.iter().any(|(state, _)| is(*state));
        let of_all = match (some(NodeState::is_up), some(|state| state == NodeState::Alive)) {
            (false, _) => Some((false, "No node is alive: nothing runs the tasks that wait.")),
            (true, false) => Some((true, "All nodes are draining: nothing starts the tasks that wait.")),
            (true, true) => None,
        };
        if let Some((meant, text)) = of_all.filter(|_| facts.queues.iter().any(|q| q.oldest.is_some())) {
            notices.insert(0, Notice::alone(meant, text.to_owned(), Some(("/nodes".to_owned(), "Nodes"))));
        }
        // What nobody wanted comes first.
        notices.sort_by_key(|notice| notice.meant);
        Self { notices }
    }
}

fn of_node(node: &Document, kind: Kind, alone: impl FnOnce(&str) -> String, detail: String) -> Alarm {
    let name = cut(&plain(node.get("node")), 80);
    let link = place(node).map(|place| (place, "The node"));
    Alarm { kind, alone: alone(&name), name, detail, link }
}

/// A node that is dead, or gone for long.
fn silent((state, node): &(NodeState, &Document)) -> Option<Alarm> {
    let alone =
        |name: &str| format!("Node {name} has not been heard of for a while: it may be dead or cut off.");
    matches!(state, NodeState::Dead | NodeState::Gone)
        .then(|| of_node(node, Kind::Silent, alone, String::new()))
}

fn overloaded((state, node): &(NodeState, &Document)) -> Option<Alarm> {
    let Stats { load, cpus, .. } = stats_of(node);
    let load = Load::of(load, cpus);
    let words = load.words.clone();
    let alone = |name: &str| format!("The load of node {name} is {words} processors.");
    (state.is_up() && load.is_far_too_high()).then(|| of_node(node, Kind::Overloaded, alone, words.clone()))
}

fn asks(facts: &QueueFacts) -> Option<Alarm> {
    let ((count, first), name) = (facts.asks?, short(&facts.queue));
    let (alone, detail) = match count {
        1 => (format!("A task of {name} waits for an answer."), String::new()),
        count => (format!("{} tasks of {name} wait for an answer.", grouped(count)), grouped(count)),
    };
    let link = Some((format!("/tasks/{first}"), "What it asks"));
    Some(Alarm { kind: Kind::Asks, name, alone, detail, link })
}

/// What is wrong with a queue in which tasks wait, or most of whose tasks fail. The first thing only.
fn of_queue(facts: &QueueFacts, nodes: &[(NodeState, &Document)], now: DateTime) -> Option<Alarm> {
    let waits = facts.oldest.and_then(|since| of_waiting(facts, nodes, now, since));
    let (kind, alone, detail) = waits.or_else(|| of_failing(facts))?;
    let id = facts.queue.id;
    let link = match kind {
        Kind::Rate | Kind::Stuck => (format!("/tasks?queue={id}&status=-2"), "The tasks"),
        Kind::Failing | Kind::Unusual => (format!("/tasks?queue={id}&status=2"), "The tasks"),
        _ => (format!("/queues/{id}"), "The queue"), // It is the queue that has to be changed.
    };
    Some(Alarm { kind, name: short(&facts.queue), alone, detail, link: Some(link) })
}

/// What is wrong, with the sentence for it alone, and what is to be known of it among others.
type Wrong = (Kind, String, String);

fn of_waiting(
    facts: &QueueFacts,
    nodes: &[(NodeState, &Document)],
    now: DateTime,
    since: DateTime,
) -> Option<Wrong> {
    let (queue, name) = (&facts.queue, short(&facts.queue));
    let waited = now.timestamp_millis().saturating_sub(since.timestamp_millis()) / 1000;
    let waited = u64::try_from(waited).unwrap_or(0);
    let alone = |kind, alone| Some((kind, alone, String::new()));
    if queue.is_paused() {
        return alone(Kind::Paused, format!("{name} is paused, and tasks wait in it."));
    }
    if queue.thread_limit() == 0 {
        return alone(Kind::NoThreads, format!("Tasks wait in {name}, whose threads are 0."));
    }
    match Lacking::of(queue, nodes.iter().copied()) {
        Some(Lacking::Plugin | Lacking::UsablePlugin(_)) => {
            return alone(Kind::NoPlugin, format!("Tasks wait in {name}, which has no usable plugin."));
        }
        Some(Lacking::NodeWith(plugin)) => {
            let alone = format!("Tasks wait in {name}, and no node that is alive has {}.", lacking(&plugin));
            return Some((Kind::NoNode, alone, plugin.to_string()));
        }
        Some(Lacking::Node) | None => {} // That is said once for all queues.
    }
    if let Some(text) = by_rate(facts).filter(|_| waited > STUCK_SECONDS) {
        return Some((Kind::Rate, format!("{name}: {text}."), text));
    }
    let last = facts.hour.iter().rev().take(STUCK_MINUTES);
    if facts.running == 0 && waited > STUCK_SECONDS && sum(last).total() == 0 {
        let waited = rough(waited);
        let alone = format!("Nothing of {name} runs, though a task has waited for {waited}.");
        return Some((Kind::Stuck, alone, waited));
    }
    None
}

fn of_failing(facts: &QueueFacts) -> Option<Wrong> {
    let name = short(&facts.queue);
    let ended = facts.last_hour();
    if ended.total() >= MANY && ended.failed >= ended.total().div_ceil(2) {
        let (part, all) = (grouped(ended.failed), grouped(ended.total()));
        let alone = format!("{part} of the {all} tasks of {name} that ended within the last hour failed.");
        return Some((Kind::Failing, alone, format!("{part} of {all}")));
    }
    let (lately, before) = unusual(&facts.hour)?;
    let (part, all) = (grouped(lately.failed), grouped(lately.total()));
    let before = format!("before, {} of {}", grouped(before.failed), grouped(before.total()));
    let alone = format!(
        "{part} of the {all} tasks of {name} that ended within the last {LATELY} minutes failed; {before}."
    );
    Some((Kind::Unusual, alone, format!("{part} of {all}; {before}")))
}

/// What a queue comes to whose tasks wait for nothing but its rate.
fn by_rate(facts: &QueueFacts) -> Option<String> {
    let work = facts.work();
    let rate = work.rate.filter(|_| work.waits_for_rate() && work.running < facts.queue.thread_limit())?.rate;
    let takes = rough(rate_takes(&rate, work.waiting));
    Some(format!("{} wait, {}, empty in {takes}", facts.waiting.words(), rate_words(&rate)))
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

const NAMED: usize = 10;

words! {
    /// What is wrong, in words for several with `#` for how many they are.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Silent = "# nodes have not been heard of for a while",
        Overloaded = "The load of # nodes is far too high",
        Asks = "Tasks of # queues wait for an answer",
        Paused = "# queues are paused, and tasks wait in them",
        NoThreads = "Tasks wait in # queues whose threads are 0",
        NoPlugin = "Tasks wait in # queues without a usable plugin",
        NoNode = "# queues are without nodes, as none that is alive has their plugins",
        Rate = "Tasks of # queues wait for their rates",
        Stuck = "Nothing of # queues runs, though tasks wait",
        Failing = "Half of the tasks of # queues, or more, failed within the last hour",
        Unusual = "More tasks than usual of # queues failed lately",
    }
}

#[derive(Debug)]
struct Alarm {
    kind: Kind,
    name: String,
    alone: String,
    /// What is to be known of it among others of its kind.
    detail: String,
    link: Option<(String, &'static str)>,
}

/// What is shown: one alarm alone has a sentence of its own, and several of a kind share one that names what they are about.
#[derive(Debug, PartialEq, Eq)]
struct Notice {
    /// Whether it is as somebody wanted it.
    meant: bool,
    text: String,
    link: Option<(String, &'static str)>,
    /// What several alarms are about: its name, its address, and what is to be known of it.
    about: Vec<(String, Option<String>, String)>,
    more: u64,
}

impl Notice {
    const fn alone(meant: bool, text: String, link: Option<(String, &'static str)>) -> Self {
        Self { meant, text, link, about: Vec::new(), more: 0 }
    }

    /// What alarms come to, those of a kind in one, in the order in which kinds come first.
    fn all(alarms: Vec<Alarm>) -> Vec<Self> {
        let mut kinds: Vec<(Kind, Vec<Alarm>)> = Vec::new();
        for alarm in alarms {
            match kinds.iter_mut().find(|(kind, _)| *kind == alarm.kind) {
                Some((_, others)) => others.push(alarm),
                None => kinds.push((alarm.kind, vec![alarm])),
            }
        }
        kinds.into_iter().map(|(kind, alarms)| Self::of(kind, alarms)).collect()
    }

    fn of(kind: Kind, alarms: Vec<Alarm>) -> Self {
        let meant = matches!(kind, Kind::Paused | Kind::Rate);
        let alarms = match <[Alarm; 1]>::try_from(alarms) {
            Ok([Alarm { alone, link, .. }]) => return Self::alone(meant, alone, link),
            Err(alarms) => alarms,
        };
        let text = kind.as_str().replace('#', &alarms.len().to_string());
        let more = alarms.len().saturating_sub(NAMED) as u64;
        let about = |alarm: Alarm| (alarm.name, alarm.link.map(|(address, _)| address), alarm.detail);
        let about = alarms.into_iter().take(NAMED).map(about).collect();
        Self { meant, text, link: None, about, more }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::counters::count::Amount;
    use disbatch_core::rate::{Rate, Standing};

    use super::*;
    use crate::ui::nodes::Now;
    use crate::ui::queue_state::Tally;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    impl Notice {
        /// All of it as text.
        fn words(&self) -> String {
            let about = |(name, _, detail): &(String, _, String)| match detail.as_str() {
                "" => name.clone(),
                detail => format!("{name} ({detail})"),
            };
            let about: Vec<String> = self.about.iter().map(about).collect();
            let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
            let of = if about.is_empty() { "" } else { ": " };
            format!("{}{of}{}{more}", self.text, about.join(", "))
        }
    }

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
        Attention::of(&facts).notices.iter().map(Notice::words).collect()
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
        let Alarm { alone, link, .. } = asks(&asking).unwrap();
        assert_eq!(alone, "A task of q waits for an answer.");
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
        let named = (0..9).map(|number| format!("n{number}")).collect::<Vec<_>>().join(", ");
        assert_eq!(texts(vec![], many), [format!("9 nodes have not been heard of for a while: {named}")]);
    }

    #[test]
    fn nodes_that_all_drain_start_nothing() {
        let draining = || node(doc! { "draining": true });
        let told = ["All nodes are draining: nothing starts the tasks that wait."];
        assert_eq!(texts(vec![queue(doc! {})], vec![draining(), draining()]), told);
        assert_eq!(texts(vec![queue(doc! {})], vec![draining(), node(doc! {})]), [""; 0]);
        let mut idle = queue(doc! {});
        idle.oldest = None;
        assert_eq!(texts(vec![idle], vec![draining()]), [""; 0]);
    }

    #[test]
    fn alarms_of_a_kind_are_one_that_leads_to_each() {
        let stopped = |name: String| queue(doc! { "name": name, "paused": true });
        let lacking = |name: &str| queue(doc! { "name": name, "plugin": "Other" });
        let mut queues = vec![lacking("a"), lacking("b")];
        let ids: Vec<_> = queues.iter().map(|facts| facts.queue.id).collect();
        queues.extend((0..12).map(|number| stopped(format!("s{number}"))));
        let facts = Facts { queues, nodes: vec![node(doc! {})], now: Now { server: NOW, host: NOW } };
        let shown = Attention::of(&facts);
        let said: Vec<String> = shown.notices.iter().map(Notice::words).collect();
        let lacks =
            "2 queues are without nodes, as none that is alive has their plugins: a (Other), b (Other)";
        assert_eq!((said.len(), said[0].as_str()), (2, lacks));
        assert!(said[1].starts_with("12 queues are paused, and tasks wait in them: s0, s1"), "{said:?}");
        assert!(said[1].ends_with("s9 and 2 more"), "{said:?}");
        let html = shown.render().unwrap();
        for (id, name) in ids.iter().zip(["a", "b"]) {
            assert!(html.contains(&format!("<a href=\"/queues/{id}\">{name}</a> (Other)")), "{html}");
        }
        let loaded = || node(doc! { "stats": { "load": 9.2, "cpus": 2 } });
        let told = texts(vec![], vec![loaded(), loaded()]);
        assert_eq!(told, ["The load of 2 nodes is far too high: n (9.20 of 2), n (9.20 of 2)"]);
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
