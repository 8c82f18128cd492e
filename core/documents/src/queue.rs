//! A queue: which plugin runs its tasks, how many at once, and how long they are kept when they have ended.

use std::time::Duration;

use bson::{Bson, DateTime, Document};
use disbatch_values::liberal::{as_text, count, number};
use disbatch_values::words;
use serde::{Deserialize, Deserializer, Serialize};

use super::document::{Stored, required};
use super::{PluginName, PluginNameError, QueueId};

/// The field with who has paused the queue, or had it accept no tasks, and when.
pub const STOPPED: &str = "stopped";

/// A document of `queues`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Queue {
    #[serde(rename = "_id")]
    pub id: QueueId,
    #[serde(flatten)]
    pub rest: Document,
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Sort {
        /// Oldest id first.
        Fifo = "fifo",
        /// Newest id first.
        Lifo = "lifo",
        /// The server's order.
        Default = "default",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Sorted(Sort),
    Priority,
    /// Groups take turns. See `core/src/fair.rs`.
    Fair,
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored(mut rest) = Stored::deserialize(deserializer)?;
        Ok(Self { id: required(&mut rest, "_id")?, rest })
    }
}

impl Queue {
    /// What is left of a queue that was deleted: its id.
    pub fn without_document(id: QueueId) -> Self {
        Self { id, rest: Document::new() }
    }

    pub fn tenant(&self) -> Option<&str> {
        self.rest.get("tenant").and_then(Bson::as_str)
    }

    /// The name as text; what else a client has stored, a number for instance, is written out.
    pub fn display_name(&self) -> String {
        match self.rest.get("name") {
            Some(Bson::Null) | None => String::new(),
            Some(name) => as_text(name),
        }
    }

    pub fn plugin_name(&self) -> Result<Option<PluginName>, PluginNameError> {
        match self.rest.get("plugin") {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::String(name)) if name.is_empty() => Ok(None),
            Some(name) => as_text(name).parse().map(Some),
        }
    }

    /// How many tasks may run at once over all DENs: 0 when unset.
    pub fn thread_limit(&self) -> u64 {
        self.rest.get("threads").and_then(count).unwrap_or(0)
    }

    pub fn is_paused(&self) -> bool {
        self.rest.get("paused").and_then(Bson::as_bool).unwrap_or(false)
    }

    pub fn is_accepting(&self) -> bool {
        self.rest.get("accepting").and_then(Bson::as_bool).unwrap_or(true)
    }

    /// When it was paused, or was told to take no new tasks, and by whom, if that is known.
    pub fn stopped(&self) -> Option<(DateTime, Option<&str>)> {
        let stopped = self.rest.get_document(STOPPED).ok()?;
        Some((*stopped.get_datetime("at").ok()?, stopped.get_str("by").ok()))
    }

    /// Why it is paused or takes no new tasks, in the operator's words.
    pub fn reason(&self) -> Option<&str> {
        self.rest.get("reason").and_then(Bson::as_str).filter(|reason| !reason.is_empty())
    }

    /// How many may be claimed: none while it is paused.
    pub fn claim_limit(&self) -> u64 {
        if self.is_paused() { 0 } else { self.thread_limit() }
    }

    /// By what it is decided which task is next. What nobody knows counts as not given: then `sort` says it, as to Perl's
    /// programs, which know nothing else.
    pub fn policy(&self) -> Policy {
        match self.rest.get("policy").and_then(Bson::as_str) {
            Some("fifo") => Policy::Sorted(Sort::Fifo),
            Some("lifo") => Policy::Sorted(Sort::Lifo),
            Some("priority") => Policy::Priority,
            Some("fair") => Policy::Fair,
            _ => Policy::Sorted(self.sort_order().unwrap_or(Sort::Default)),
        }
    }

    /// What `sort` says, where it would decide and nobody knows it.
    pub fn unknown_sort(&self) -> Option<String> {
        let decides = matches!(self.policy(), Policy::Sorted(Sort::Default));
        self.sort_order().err().filter(|_| decides).map(as_text)
    }

    /// Whether a new task may come before those that wait already.
    pub fn may_prefer_new_tasks(&self) -> bool {
        !matches!(self.policy(), Policy::Sorted(Sort::Fifo | Sort::Default))
    }

    /// The order of claiming by ids, unless there is a policy. An unknown value is given back for a warning; the default order applies then.
    pub fn sort_order(&self) -> Result<Sort, &Bson> {
        match self.rest.get("sort") {
            None | Some(Bson::Null) => Ok(Sort::Default),
            Some(stored) => stored.as_str().and_then(Sort::named).ok_or(stored),
        }
    }
}

/// The field `retention` of a queue. Both times count from the end of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// After so long an ended task moves to the archive.
    pub archive_after: Option<Duration>,
    /// After so long it is deleted, archived or not.
    pub delete_after: Option<Duration>,
}

impl Retention {
    /// What the queue says. Values that make no sense count as not given: nothing is deleted by mistake.
    pub fn of(queue: &Queue) -> Self {
        let retention = queue.rest.get_document("retention").ok();
        let seconds = |key: &str| {
            let seconds = retention?.get(key).and_then(number)?;
            Duration::try_from_secs_f64(seconds).ok().filter(|after| after.as_millis() < 1 << 52)
        };
        Self { archive_after: seconds("archive_after"), delete_after: seconds("delete_after") }
    }

    pub fn is_none(&self) -> bool {
        self.archive_after.is_none() && self.delete_after.is_none()
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{deserialize_from_document, doc};

    use super::*;

    #[test]
    fn a_policy_comes_before_the_order_and_rubbish_counts_as_nothing() {
        let policy = |fields: Document| {
            let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
            queue.extend(fields);
            let queue: Queue = deserialize_from_document(queue).unwrap();
            (queue.policy(), queue.may_prefer_new_tasks())
        };
        assert_eq!(policy(doc! {}), (Policy::Sorted(Sort::Default), false));
        assert_eq!(policy(doc! { "sort": "lifo" }), (Policy::Sorted(Sort::Lifo), true));
        assert_eq!(policy(doc! { "sort": "lifo", "policy": "fifo" }), (Policy::Sorted(Sort::Fifo), false));
        assert_eq!(policy(doc! { "policy": "lifo" }), (Policy::Sorted(Sort::Lifo), true));
        assert_eq!(policy(doc! { "sort": "lifo", "policy": "fair" }), (Policy::Fair, true));
        assert_eq!(policy(doc! { "policy": "priority" }), (Policy::Priority, true));
        assert_eq!(policy(doc! { "sort": 7, "policy": ["fair"] }), (Policy::Sorted(Sort::Default), false));
        let unknown = |fields: Document| {
            let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
            queue.extend(fields);
            deserialize_from_document::<Queue>(queue).unwrap().unknown_sort()
        };
        assert_eq!(unknown(doc! { "sort": "weird" }).as_deref(), Some("weird"));
        assert_eq!(unknown(doc! { "sort": 7 }).as_deref(), Some("7"));
        assert_eq!(unknown(doc! { "sort": "weird", "policy": "fair" }), None, "it decides nothing");
        assert_eq!(unknown(doc! { "sort": "default" }), None);
    }

    #[test]
    fn only_numbers_of_seconds_count() {
        let read = |document: Document| {
            let rest = doc! { "retention": document };
            Retention::of(&Queue { rest, ..Queue::without_document(QueueId(ObjectId::new())) })
        };
        let both = read(doc! { "archive_after": 60, "delete_after": 1.5 });
        assert_eq!(both.archive_after, Some(Duration::from_secs(60)));
        assert_eq!(both.delete_after, Some(Duration::from_millis(1500)));
        assert_eq!(read(doc! { "archive_after": 0 }).archive_after, Some(Duration::ZERO));
        for wrong in [Bson::from(-1), Bson::from("60"), Bson::Null, Bson::from(f64::NAN), Bson::from(1e300)] {
            assert!(read(doc! { "archive_after": &wrong, "delete_after": &wrong }).is_none(), "{wrong}");
        }
    }
}
