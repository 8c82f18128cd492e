//! The span as a picture: a lane for each queue, or for each node where a queue is given, with what ran there and what happened.

use std::collections::{BTreeMap, HashMap};

use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::model::Status;
use disbatch_core::moment::{Event, Past, Question, Ran};

use crate::ui;
use crate::ui::titles::end_of;

/// How wide a lane is, in its own units.
const WIDTH: i64 = 1000;

/// No bar is narrower: it would not be seen.
const LEAST: i64 = 3;

/// So many lanes are shown, and so many bars in each.
const LANES: usize = 40;
const BARS: usize = 300;

/// A lane.
pub(super) struct Lane {
    pub name: String,
    pub words: String,
    pub bars: Vec<Bar>,
    /// Where the moment is.
    pub at: i64,
}

/// Something in a lane.
pub(super) struct Bar {
    pub tone: &'static str,
    pub left: i64,
    pub width: i64,
    pub title: String,
    /// How high it is, and where it begins: marks are lower than what ran.
    pub top: i64,
    pub height: i64,
}

/// What is in a lane.
#[derive(Default)]
struct Within<'a> {
    ran: Vec<&'a Ran>,
    events: Vec<&'a Event>,
}

/// All lanes, those with names first.
pub(super) fn of(question: &Question, past: &Past, names: &HashMap<ObjectId, String>) -> Vec<Lane> {
    let by_node = question.queue.is_some();
    let name = |queue: Option<ObjectId>, node: Option<&str>| match (by_node, queue) {
        (true, _) => node.unwrap_or("no node").to_owned(),
        (false, Some(queue)) => names.get(&queue).cloned().unwrap_or_else(|| end_of(queue)),
        (false, None) => "no queue".to_owned(),
    };
    let mut lanes: BTreeMap<String, Within<'_>> = BTreeMap::new();
    for ran in &past.ran {
        let name = name(ran.queue.map(|queue| queue.0), ran.node.as_deref());
        lanes.entry(name).or_default().ran.push(ran);
    }
    for event in &past.events {
        let name = name(event.queue.map(|queue| queue.0), event.node.as_deref());
        lanes.entry(name).or_default().events.push(event);
    }
    lanes.into_iter().take(LANES).map(|(name, within)| lane(name, &within, question)).collect()
}

fn lane(name: String, within: &Within<'_>, question: &Question) -> Lane {
    let bars = within.ran.iter().take(BARS).map(|ran| bar(ran, question));
    let marks = within.events.iter().take(BARS).map(|event| mark(event, question));
    Lane {
        words: format!("{name}: {} ran, {} happened", within.ran.len(), within.events.len()),
        name,
        bars: bars.chain(marks).collect(),
        at: place(question.at, question).saturating_sub(1),
    }
}

fn bar(ran: &Ran, question: &Question) -> Bar {
    let left = place(ran.since, question);
    let right = ran.until.map_or(WIDTH, |until| place(until, question));
    let then = ran.then.unwrap_or(Status::Running);
    let attempt = ran.attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
    let node = ran.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
    let title = format!("{}{attempt}{node}: {}", end_of(ran.task.0), ui::word(then));
    Bar { tone: then.word(), left, width: (right - left).max(LEAST), title, top: 0, height: 14 }
}

fn mark(event: &Event, question: &Question) -> Bar {
    let tone = event.status.map_or("claimed", |status| status.word());
    let title = format!("{} {}", ui::zone::clock(event.at), event.words);
    Bar { tone, left: place(event.at, question), width: LEAST, title, top: 14, height: 6 }
}

/// Where a time is in the picture.
fn place(at: DateTime, question: &Question) -> i64 {
    let (from, to) = (question.from().timestamp_millis(), question.to().timestamp_millis());
    let past = at.timestamp_millis().saturating_sub(from).clamp(0, to - from);
    past.saturating_mul(WIDTH) / (to - from).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use disbatch_core::accounts::Reach;
    use disbatch_core::model::{QueueId, TaskId};

    use super::*;

    fn question(queue: Option<QueueId>) -> Question {
        let around = Duration::from_secs(100);
        let at = DateTime::from_millis(100_000);
        Question { at, around, queue, node: None, reach: Reach::All, changes: Reach::All }
    }

    #[test]
    fn lanes_are_of_queues_or_of_the_nodes_of_one() {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let ran = Ran {
            task: TaskId(ObjectId::from_bytes([2; 12])),
            queue: Some(queue),
            node: Some("n1".to_owned()),
            attempt: Some(1),
            since: DateTime::from_millis(50_000),
            until: Some(DateTime::from_millis(150_000)),
            then: Some(Status::Failed),
            note: String::new(),
        };
        let past = Past { ran: vec![ran], waiting: None, limits: vec![], events: vec![], gaps: vec![] };
        let names = [(queue.0, "mail".to_owned())].into();
        let lanes = of(&question(None), &past, &names);
        assert_eq!(lanes.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["mail"]);
        let bar = &lanes[0].bars[0];
        assert_eq!((bar.tone, bar.left, bar.width), ("failed", 250, 500));
        assert_eq!(lanes[0].at, 499);
        assert_eq!(of(&question(Some(queue)), &past, &names)[0].name, "n1");
    }

    #[test]
    fn what_is_outside_of_the_span_is_at_its_edge() {
        let at = |millis| place(DateTime::from_millis(millis), &question(None));
        assert_eq!([-5, 0, 200_000, i64::MAX].map(at), [0, 0, 1000, 1000]);
    }
}
