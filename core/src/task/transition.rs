//! How a transition is written: one update as a pipeline, so that the server's clock and the task's own
//! fields can be used, and so that the history gets its entry in the same update.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use crate::model::Status;

/// A task's history holds so many entries at most; the oldest go first.
const HISTORY: i32 = 50;

/// What belongs to a running attempt, and ends with it.
const OF_A_RUN: [&str; 5] = ["slot", "lease_until", "instance", "pid", "uploads"];

/// An update that takes a task to another status.
#[derive(Debug)]
pub(super) struct Transition {
    set: Document,
    unset: Vec<&'static str>,
    note: Option<String>,
}

impl Transition {
    /// To `status`, at `now`.
    pub(super) fn to(status: Status, now: DateTime) -> Self {
        Self { set: doc! { "status": status, "mtime": now }, unset: Vec::new(), note: None }
    }

    /// Sets a field to a value. Text that looks like an expression stays text.
    pub(super) fn set(mut self, field: &str, value: impl Into<Bson>) -> Self {
        self.set.insert(field, doc! { "$literal": value.into() });
        self
    }

    /// Sets a field to what an expression gives.
    pub(super) fn compute(mut self, field: &str, expression: impl Into<Bson>) -> Self {
        self.set.insert(field, expression);
        self
    }

    /// Removes a field.
    pub(super) fn unset(mut self, field: &'static str) -> Self {
        self.unset.push(field);
        self
    }

    /// Back to no node.
    pub(super) fn without_node(self) -> Self {
        self.set("node", Bson::Null)
    }

    /// Removes what belongs to the attempt that ends here.
    pub(super) fn end_of_run(mut self) -> Self {
        self.unset.extend(OF_A_RUN);
        self
    }

    /// Says in the history why.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// As MongoDB takes it.
    pub(super) fn pipeline(self) -> Vec<Document> {
        let mut entry = doc! { "at": "$$NOW", "status": "$status", "attempt": "$attempt", "node": "$node" };
        if let Some(note) = self.note {
            entry.insert("note", doc! { "$literal": note });
        }
        let before = doc! { "$cond": [{ "$isArray": "$history" }, "$history", []] };
        let history = doc! { "$slice": [{ "$concatArrays": [before, [entry]] }, -HISTORY] };
        let mut stages = vec![doc! { "$set": self.set }, doc! { "$set": { "history": history } }];
        if !self.unset.is_empty() {
            stages.push(doc! { "$unset": self.unset });
        }
        stages
    }
}

/// The server's time so long from now.
pub(super) fn server_time_in(duration: Duration) -> Document {
    doc! { "$add": ["$$NOW", millis(duration)] }
}

/// A condition: the time in `field` is past, by the server's clock.
pub(super) fn is_past(field: &str) -> Document {
    doc! { "$lt": [format!("${field}"), "$$NOW"] }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
