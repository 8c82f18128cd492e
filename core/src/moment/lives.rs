//! What the history of a task says of a time. Pure.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};

use super::Ran;
use crate::model::{Moment, Phase, QueueId, Status, TaskId, whole_number};
use crate::task::{Submission, history};

/// The changes of a task's status, in their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Life {
    pub task: TaskId,
    pub queue: Option<QueueId>,
    /// The schedule that has made it.
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
    /// That of a task as stored. `None`: it has no id.
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
    pub(super) fn status_at(&self, at: DateTime) -> Option<Status> {
        self.changes.iter().take_while(|change| change.at <= at).last().map(|change| change.status)
    }

    /// Whether it waited at a time.
    pub(super) fn waited_at(&self, at: DateTime) -> bool {
        self.status_at(at).and_then(Status::phase) == Some(Phase::Queued)
    }

    pub(super) fn submitted(&self) -> Option<DateTime> {
        self.changes.first().filter(|first| first.note == Submission::NOTE).map(|first| first.at)
    }

    /// Its attempts, each from when it ran until what came next.
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
        at: time(entry, "at")?,
        status: Status::from_code(entry.get("status").and_then(whole_number)?),
        attempt: entry.get("attempt").and_then(whole_number),
        node: entry.get_str("node").ok().map(str::to_owned),
        note: entry.get_str("note").unwrap_or_default().to_owned(),
    })
}

/// What the other fields say of a task whose history was left out, or of Perl's: its last attempt.
fn without_history(task: &Document) -> Vec<Change> {
    let Some(status) = task.get("status").and_then(whole_number).map(Status::from_code) else {
        return Vec::new();
    };
    let change = |at, status| Change {
        at,
        status,
        attempt: task.get("attempt").and_then(whole_number),
        node: task.get_str("node").ok().map(str::to_owned),
        note: String::new(),
    };
    let has_run = status == Status::Running || status.has_ended();
    let started = time(task, "started").filter(|_| has_run).map(|at| change(at, Status::Running));
    let ended = time(task, "mtime").filter(|_| status.has_ended()).map(|at| change(at, status));
    started.into_iter().chain(ended).collect()
}

fn time(document: &Document, field: &str) -> Option<DateTime> {
    Moment(document.get(field)?.clone()).get()
}

#[cfg(test)]
pub(super) mod tests {
    use bson::doc;

    use super::*;

    pub(in crate::moment) fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_795_163_067_000 + seconds * 1000)
    }

    fn entry(seconds: i64, status: i32, attempt: i32) -> Document {
        doc! { "at": at(seconds), "status": status, "attempt": attempt, "node": format!("n{attempt}"), "note": "why" }
    }

    /// Waits, fails, waits again, succeeds.
    pub(in crate::moment) fn tried_twice() -> Life {
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
}
