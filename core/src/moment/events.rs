//! What happened, on one time line, and what the history of a task says of a time. Pure.

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};

use super::{Question, Ran};
use crate::audit::{AuditKey, Object, ObjectKind};
use crate::budget::cut;
use crate::model::{Phase, QueueId, Status, TaskId, date_time, whole_number};
use crate::task::{Submission, history};
use disbatch_values::words;

/// So many characters of a value are told.
const VALUE: usize = 80;

/// A node whose numbers are missing for longer was silent: milliseconds.
pub(super) const SILENCE: i64 = 150_000;

/// The changes of a task's status, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Life {
    pub task: TaskId,
    pub queue: Option<QueueId>,
    pub schedule: Option<ObjectId>,
    pub changes: Vec<Change>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub at: DateTime,
    pub status: Status,
    pub attempt: Option<i64>,
    pub node: Option<String>,
    pub note: String,
}

impl Life {
    pub(super) fn of(task: &Document) -> Option<Self> {
        let told = history(task).or_else(|| task.get_array("history").ok().cloned()).unwrap_or_default();
        let mut changes: Vec<Change> = told.iter().filter_map(Bson::as_document).filter_map(change).collect();
        if !changes.iter().any(|change| change.note != Submission::NOTE) {
            changes.extend(without_history(task));
        }
        Some(Self {
            task: TaskId(task.get_object_id("_id").ok()?),
            queue: task.get_object_id("queue").ok().map(QueueId),
            schedule: task.get_object_id("schedule").ok(),
            changes,
        })
    }

    /// What it was at a time. `None`: it was not there yet.
    fn status_at(&self, at: DateTime) -> Option<Status> {
        self.changes.iter().take_while(|change| change.at <= at).last().map(|change| change.status)
    }

    pub(super) fn waited_at(&self, at: DateTime) -> bool {
        self.status_at(at).and_then(Status::phase) == Some(Phase::Queued)
    }

    pub(super) fn submitted(&self) -> Option<DateTime> {
        self.changes.first().filter(|first| first.note == Submission::NOTE).map(|first| first.at)
    }

    pub(super) fn attempts(&self) -> Vec<Ran> {
        let next = self.changes.iter().skip(1).map(Some).chain([None]);
        let pairs = self.changes.iter().zip(next);
        let attempt = |(change, next): (&Change, Option<&Change>)| Ran {
            task: self.task,
            queue: self.queue,
            node: change.node.clone(),
            attempt: change.attempt,
            since: change.at,
            until: next.map(|next| next.at),
            then: next.map(|next| next.status),
            note: next.map(|next| next.note.clone()).unwrap_or_default(),
        };
        pairs.filter(|(change, _)| change.status == Status::Running).map(attempt).collect()
    }
}

fn change(entry: &Document) -> Option<Change> {
    Some(Change {
        at: entry.get("at").and_then(date_time)?,
        status: Status::stored(entry)?,
        attempt: entry.get("attempt").and_then(whole_number),
        node: entry.get_str("node").ok().map(str::to_owned),
        note: entry.get_str("note").unwrap_or_default().to_owned(),
    })
}

/// What the other fields say of a task whose history was left out, or of Perl's: its last attempt.
fn without_history(task: &Document) -> Vec<Change> {
    let Some(status) = Status::stored(task) else { return Vec::new() };
    let change = |at, status| Change {
        at,
        status,
        attempt: task.get("attempt").and_then(whole_number),
        node: task.get_str("node").ok().map(str::to_owned),
        note: String::new(),
    };
    let has_run = status == Status::Running || status.has_ended();
    let time = |field: &str| task.get(field).and_then(date_time);
    let started = time("started").filter(|_| has_run).map(|at| change(at, Status::Running));
    let ended = time("mtime").filter(|_| status.has_ended()).map(|at| change(at, status));
    started.into_iter().chain(ended).collect()
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kind {
        /// A task or an attempt ended, and not well.
        Task = "task",
        /// A node came or went.
        Node = "node",
        /// Somebody changed something.
        Change = "change",
        /// A schedule made a task.
        Schedule = "schedule",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub at: DateTime,
    pub kind: Kind,
    pub words: String,
    pub task: Option<TaskId>,
    pub queue: Option<QueueId>,
    pub node: Option<String>,
    pub schedule: Option<ObjectId>,
    /// What the task was then.
    pub status: Option<Status>,
    pub by: Option<String>,
}

impl Event {
    fn new(at: DateTime, kind: Kind, words: String) -> Self {
        let (task, queue, node, schedule, status, by) = (None, None, None, None, None, None);
        Self { at, kind, words, task, queue, node, schedule, status, by }
    }

    pub(super) fn of_node(at: DateTime, node: &str, words: &str) -> Self {
        Self { node: Some(node.to_owned()), ..Self::new(at, Kind::Node, words.to_owned()) }
    }

    pub(super) fn of_entry(entry: &Document) -> Option<Self> {
        let AuditKey { at, .. } = AuditKey::of(entry)?;
        let what = entry.get_str("what").unwrap_or_default();
        let mut words = what.to_owned();
        let object = Object::of_entry(entry);
        if let Some(name) = object.as_ref().and_then(|object| object.name.as_deref()) {
            words = format!("{words} {name}");
        }
        let changes = changes(entry);
        // What is new has all its fields, which its own page tells.
        if !changes.is_empty() && !what.ends_with(" create") {
            words = format!("{words}: {changes}");
        }
        let by = entry.get_str("user").or_else(|_| entry.get_str("by")).ok().map(str::to_owned);
        let queue = entry.get_object_id("queue").ok().map(QueueId);
        let of = |kind: ObjectKind| object.clone().filter(|object| object.kind == kind);
        let task = of(ObjectKind::Task).and_then(|object| object.id).map(TaskId);
        let node = of(ObjectKind::Node).and_then(|object| object.name);
        Some(Self { by, queue, task, node, ..Self::new(at, Kind::Change, words) })
    }
}

/// The fields that differ, as `threads 1 → 4`.
fn changes(entry: &Document) -> String {
    let part = |name: &str| entry.get_document(name).ok().cloned().unwrap_or_default();
    let (before, after) = (part("before"), part("after"));
    let told = |value: Option<&Bson>| match value {
        None | Some(Bson::Null) => "nothing".to_owned(),
        Some(Bson::String(text)) => cut(text, VALUE),
        Some(value) => cut(&value.clone().into_relaxed_extjson().to_string(), VALUE),
    };
    let added = after.keys().filter(|field| !before.contains_key(field));
    let fields = before.keys().chain(added);
    let change = |field: &String| format!("{field} {} → {}", told(before.get(field)), told(after.get(field)));
    fields.map(change).collect::<Vec<_>>().join(", ")
}

/// What a task tells of the span: ends that were not good, and that a schedule has made it.
pub(super) fn of_life(life: &Life, question: &Question) -> Vec<Event> {
    let base =
        |at, kind, words| Event { task: Some(life.task), queue: life.queue, ..Event::new(at, kind, words) };
    let submitted = life.submitted().filter(|at| question.spans(*at) && question.node.is_none());
    let fired = life.schedule.zip(submitted).map(|(schedule, at)| Event {
        schedule: Some(schedule),
        ..base(at, Kind::Schedule, "a schedule made a task".to_owned())
    });
    let is_bad = |change: &Change| change.status.has_ended() && change.status != Status::Succeeded;
    let ended = |change: &Change| (change.at, change.status, change.node.clone(), change.note.clone());
    let ends = life.changes.iter().filter(|change| is_bad(change)).map(ended);
    // One that goes on elsewhere, or is tried again.
    let goes_on = |ran: &Ran| ran.then.filter(|then| !then.has_ended()).zip(ran.until);
    let attempts = life.attempts();
    let again = attempts.iter().filter_map(|ran| {
        let (then, until) = goes_on(ran)?;
        Some((until, then, ran.node.clone(), ran.note.clone()))
    });
    let is_asked = |at: DateTime, node: Option<&str>| question.spans(at) && question.is_about(node);
    let told = ends.chain(again).filter(|(at, _, node, _)| is_asked(*at, node.as_deref()));
    let told = told.map(|(at, status, node, note)| {
        let what = if status.has_ended() {
            format!("a task ended as {}", status.word())
        } else {
            format!("an attempt ended, and its task went on as {}", status.word())
        };
        let words = if note.is_empty() { what } else { format!("{what}: {note}") };
        Event { node, status: Some(status), ..base(at, Kind::Task, words) }
    });
    fired.into_iter().chain(told).collect()
}

/// When nodes were heard of again after a silence, and last before one, from the minutes that there are numbers of. `within`: from when to when minutes were
/// looked for; what is at its edges is not told.
pub(super) fn of_minutes(minutes: &[(String, i64)], within: (i64, i64), question: &Question) -> Vec<Event> {
    let mut by_node: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (node, minute) in minutes {
        by_node.entry(node).or_default().push(*minute);
    }
    let mut events = Vec::new();
    for (node, mut heard) in by_node {
        heard.sort_unstable();
        let before = [within.0].into_iter().chain(heard.iter().copied());
        let after = heard.iter().copied().chain([within.1]);
        let event = |at, words| Event::of_node(DateTime::from_millis(at), node, words);
        for (one, next) in before.zip(after).filter(|(one, next)| next - one > SILENCE) {
            // Nothing is known of what was before the minutes that were looked at.
            let is_known = one != within.0;
            if is_known {
                events.push(event(one, "last heard of before a silence"));
            }
            if next != within.1 {
                let anew = "heard of anew, or for the first time";
                events.push(event(next, if is_known { "heard of after a silence" } else { anew }));
            }
        }
    }
    events.retain(|event| question.spans(event.at));
    events
}

/// In the order of their times, at most so many of those that are next to the moment. Whether all are there.
pub(super) fn sorted(mut events: Vec<Event>, at: DateTime, most: usize) -> (Vec<Event>, bool) {
    let all = events.len() <= most;
    events.sort_by_key(|event| event.at.timestamp_millis().abs_diff(at.timestamp_millis()));
    events.truncate(most);
    events.sort_by_key(|event| (event.at, event.kind, event.task));
    (events, all)
}

#[cfg(test)]
pub(super) mod tests {
    use bson::doc;

    use super::super::AROUND;
    use super::*;
    use crate::accounts::Reach;
    use crate::model::NodeName;

    pub(in crate::moment) fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_795_163_067_000 + seconds * 1000)
    }

    fn entry(seconds: i64, status: i32, attempt: i32) -> Document {
        doc! { "at": at(seconds), "status": status, "attempt": attempt, "node": format!("n{attempt}"), "note": "why" }
    }

    /// Waits, fails, waits again, succeeds.
    fn tried_twice() -> Life {
        let history = vec![
            entry(10, -1, 1),
            entry(11, 0, 1),
            entry(20, -7, 1),
            entry(25, -2, 1),
            entry(30, -1, 2),
            entry(31, 0, 2),
            entry(40, 1, 2),
        ];
        let task =
            doc! { "_id": ObjectId::from_bytes([1; 12]), "ctime": at(0), "status": 1, "history": history };
        Life::of(&task).unwrap()
    }

    #[test]
    fn the_attempt_of_then_counts_and_not_the_latest() {
        let life = tried_twice();
        let attempts = life.attempts();
        let told: Vec<_> = attempts
            .iter()
            .map(|ran| (ran.attempt, ran.node.as_deref(), ran.since, ran.until, ran.then))
            .collect();
        let first = (Some(1), Some("n1"), at(11), Some(at(20)), Some(Status::Deferred));
        let second = (Some(2), Some("n2"), at(31), Some(at(40)), Some(Status::Succeeded));
        assert_eq!(told, [first, second]);
        let ran = |seconds| attempts.iter().filter(|ran| ran.ran_at(at(seconds))).count();
        assert_eq!([10, 11, 19, 20, 31, 40].map(ran), [0, 1, 1, 0, 1, 0]);
    }

    #[test]
    fn a_task_waits_between_its_attempts() {
        let life = tried_twice();
        assert_eq!(life.status_at(at(-1)), None);
        let waited = [-1, 0, 9, 10, 15, 20, 29, 30, 41].map(|seconds| life.waited_at(at(seconds)));
        assert_eq!(waited, [false, true, true, false, false, true, true, false, false]);
        assert_eq!(life.submitted(), Some(at(0)));
    }

    #[test]
    fn a_task_without_history_tells_of_its_last_attempt() {
        let id = ObjectId::from_bytes([1; 12]);
        let ended =
            doc! { "_id": id, "ctime": at(0), "started": at(5), "mtime": at(9), "status": 2, "node": "n" };
        let attempts = Life::of(&ended).unwrap().attempts();
        assert_eq!(attempts.len(), 1);
        assert_eq!((attempts[0].since, attempts[0].until), (at(5), Some(at(9))));
        let odd = doc! { "_id": id, "history": "odd", "status": "x" };
        assert_eq!(Life::of(&odd).unwrap().changes, []);
        assert_eq!(Life::of(&doc! {}), None);
    }

    fn question() -> Question {
        Question {
            at: at(15),
            around: AROUND,
            queue: None,
            node: None,
            reach: Reach::All,
            changes: Reach::All,
        }
    }

    #[test]
    fn an_attempt_that_was_followed_by_another_is_told() {
        let told = of_life(&tried_twice(), &question());
        let words: Vec<_> = told.iter().map(|event| (event.at, event.words.as_str())).collect();
        assert_eq!(words, [(at(20), "an attempt ended, and its task went on as deferred: why")]);
        let mut fired = tried_twice();
        fired.schedule = Some(ObjectId::from_bytes([9; 12]));
        assert_eq!(of_life(&fired, &question()).len(), 2);
        let elsewhere = Question { node: Some(NodeName::new("n2")), ..question() };
        assert!(of_life(&fired, &elsewhere).is_empty());
        let early = Question { at: at(-900), ..question() };
        assert!(of_life(&fired, &early).is_empty(), "not in the span");
    }

    #[test]
    fn a_change_is_told_with_what_it_was_before() {
        let entry = doc! {
            "_id": ObjectId::from_bytes([7; 12]), "at": at(3), "user": "ann", "by": "ann from x", "what": "queue update",
            "object": { "kind": "queue", "name": "mail" }, "before": { "threads": 1 }, "after": { "threads": 4, "paused": true },
        };
        let told = Event::of_entry(&entry).unwrap();
        assert_eq!(told.words, "queue update mail: threads 1 → 4, paused nothing → true");
        assert_eq!((told.by.as_deref(), told.at), (Some("ann"), at(3)));
        let mut new = entry.clone();
        new.extend(doc! { "what": "queue create", "before": {} });
        assert_eq!(Event::of_entry(&new).unwrap().words, "queue create mail");
        assert_eq!(Event::of_entry(&doc! {}), None);
    }

    #[test]
    fn silences_of_nodes_have_two_ends() {
        let minute = |n: i64| at(0).timestamp_millis() + n * 60_000;
        let heard = |node: &str, minutes: &[i64]| {
            minutes.iter().map(|n| (node.to_owned(), minute(*n))).collect::<Vec<_>>()
        };
        let question = Question { around: AROUND * 3, ..question() };
        let told = |minutes: &[i64]| {
            let events = of_minutes(&heard("n", minutes), (minute(-6), minute(12)), &question);
            events.iter().map(|event| (event.at.timestamp_millis() - minute(0)) / 60_000).collect::<Vec<_>>()
        };
        let always: Vec<i64> = (-6..12).collect();
        assert_eq!(told(&always), [0; 0]);
        assert_eq!(told(&[0, 1, 2, 6, 7]), [0, 2, 6, 7]);
        assert_eq!(told(&[-6, -5, -4, -2, 0, 2, 4, 6, 8, 10]), [0; 0], "one missing minute is none");
    }

    #[test]
    fn what_is_next_to_the_moment_is_kept() {
        let event = |seconds| Event::of_node(at(seconds), "n", "x");
        let (events, all) = sorted(vec![event(9), event(1), event(5), event(4)], at(4), 3);
        assert_eq!(events.iter().map(|event| event.at).collect::<Vec<_>>(), [at(1), at(4), at(5)]);
        assert!(!all);
    }
}
