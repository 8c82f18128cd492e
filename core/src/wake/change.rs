//! Which changes matter. The server leaves out all others, and everything of a document that is not looked at.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use serde::Deserialize;

use super::News;
use super::hints::{Pace, Peak};
use crate::definitions::COLLECTION as WORKERS;
use crate::gates::LOCKS;
use crate::model::{QueueId, TaskId, whole_number};
use crate::store::collections::{self, SLOTS, TASKS};
use crate::task::FREED;

const QUEUES: &str = collections::QUEUES.name;
const FREE_SLOTS: &str = SLOTS.name;
const NODES: &str = collections::NODES.name;
const SUBSCRIPTIONS: &str = collections::SUBSCRIPTIONS.name;

/// The fields of a queue that say how many of its tasks may run, besides `threads`.
const LIMITS: [&str; 3] = ["paused", "policy", "group_threads"];

/// A change, as far as it matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    /// Its collection.
    of: String,
    new: bool,
    /// A task is queued now, or has another priority.
    queued: bool,
    /// A task is deferred now, or has come with a deadline.
    timed: bool,
    /// The end of a running task was asked for.
    cancel: bool,
    /// A task has ended that others wait for, or that held locks; or something has changed at a lock.
    gates: bool,
    /// A task that a web service had has ended, or waits for its next attempt.
    freed: bool,
    wants: bool,
    /// The document, where it is a node or a queue.
    document: Option<ObjectId>,
    /// What has changed of a queue, or what it has to say of limits if it is new.
    update: Option<Update>,
    /// A new task that is queued.
    task: Option<ObjectId>,
    queue: Option<ObjectId>,
    /// When it was made, by the clock of the server. Before MongoDB 6.0 it does not tell.
    pub(super) at: Option<DateTime>,
    /// Where it is in the log of the server.
    pub(super) time: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    updated_fields: Document,
    removed_fields: Vec<String>,
}

impl Update {
    /// What limit its queue has had because of it. `None`: that has not changed.
    fn peak(&self) -> Option<Peak> {
        let fields = self.updated_fields.keys().chain(&self.removed_fields);
        let mut fields = fields.filter_map(|field| field.split('.').next());
        if fields.any(|field| LIMITS.contains(&field)) {
            return Some(Peak::Unknown);
        }
        let is_removed = || self.removed_fields.iter().any(|field| field == "threads");
        match self.updated_fields.get("threads") {
            None => is_removed().then_some(Peak::Threads(0)),
            Some(_) => Some(self.threads().map_or(Peak::Unknown, Peak::Threads)),
        }
    }

    /// What limit its queue was made with.
    fn made(&self) -> Peak {
        let is_there = |field: &str| self.updated_fields.get(field).is_some_and(|value| *value != Bson::Null);
        if ["policy", "group_threads"].into_iter().any(is_there) {
            return Peak::Unknown;
        }
        self.threads().map_or(Peak::Unknown, Peak::Made)
    }

    fn threads(&self) -> Option<u64> {
        let threads = whole_number(self.updated_fields.get("threads")?)?;
        Some(u64::try_from(threads).unwrap_or(0))
    }
}

/// Heartbeats, claims and starts are not among them, and of ends only those that others wait for. Where it is only asked now and then, tasks
/// are not among them at all: they are found by looking.
pub(super) fn pipeline(pace: Pace) -> [Document; 2] {
    let changed = |field: &str| format!("updateDescription.updatedFields.{field}");
    let is_there = || doc! { "$exists": true };
    // By collection first, and tasks before all others: the server puts these questions to every write, and most of them are about running tasks.
    let of_tasks = doc! { "ns.coll": TASKS.name, "$or": [
        { changed("status"): { "$in": [-7, -2] } },
        { changed("priority"): is_there() },
        { changed("cancel"): is_there() },
        { changed("awaited"): is_there() },
        { changed(FREED): is_there() },
        { "operationType": { "$in": ["insert", "replace"] }, "$or": [
            { "fullDocument.status": { "$in": [-7, -2] } },
            { "fullDocument.deadline": is_there() },
        ] },
    ] };
    let of_locks = doc! { "ns.coll": LOCKS, "$or": [
        { "operationType": { "$in": ["insert", "replace"] }, "fullDocument.dirty": true },
        { changed("dirty"): true },
    ] };
    let of_nodes = doc! { "ns.coll": NODES, "$or": [
        { "operationType": "replace" },
        { changed("maxthreads"): is_there() },
        { changed("draining"): is_there() },
        { changed("wants"): is_there() },
        { "updateDescription.removedFields": { "$in": ["maxthreads", "draining"] } },
    ] };
    // Whoever notifies changes the state and the revision, whoever sets one the revision at least.
    let of_subscriptions = doc! { "ns.coll": SUBSCRIPTIONS, "$or": [
        { "operationType": { "$in": ["insert", "replace"] } },
        { changed("since"): is_there() },
        { changed("revision"): is_there(), changed("state"): { "$exists": false } },
    ] };
    let mut others = vec![QUEUES, WORKERS, NODES, SUBSCRIPTIONS];
    let mut of_others = vec![doc! { "ns.coll": { "$in": [QUEUES, WORKERS] } }, of_nodes, of_subscriptions];
    let mut of_interest = Vec::new();
    if pace.is_about_tasks() {
        of_interest.push(of_tasks);
        others.extend([LOCKS, FREE_SLOTS]);
        of_others.extend([of_locks, doc! { "ns.coll": FREE_SLOTS, "operationType": "delete" }]);
    }
    of_interest.push(doc! { "ns.coll": { "$in": others }, "$or": of_others });
    [doc! { "$match": { "$or": of_interest } }, doc! { "$project": fields() }]
}

/// The fields of [`Change`], of a change of the stream.
fn fields() -> Document {
    let status = doc! { "$ifNull": ["$updateDescription.updatedFields.status", "$fullDocument.status"] };
    let is_new_task = doc! { "$and": [
        { "$eq": ["$ns.coll", TASKS.name] }, { "$eq": ["$operationType", "insert"] }, { "$eq": [&status, -2] },
    ] };
    // Documents of other programs may have anything there.
    let of_new = |id: &str| {
        let is_id = doc! { "$eq": [{ "$type": id }, "objectId"] };
        doc! { "$cond": [{ "$and": [&is_new_task, is_id] }, id, "$$REMOVE"] }
    };
    let is_changed = |field: &str| {
        let path = format!("$updateDescription.updatedFields.{field}");
        doc! { "$ne": [{ "$type": path }, "missing"] }
    };
    let limit = |field: &str| (field.to_owned(), Bson::String(format!("$fullDocument.{field}")));
    let limits: Document = LIMITS.into_iter().chain(["threads"]).map(limit).collect();
    doc! {
        "_id": 1,
        "of": "$ns.coll",
        "new": { "$eq": ["$operationType", "insert"] },
        "queued": { "$or": [{ "$eq": [&status, -2] }, is_changed("priority")] },
        "timed": { "$or": [{ "$eq": [status, -7] }, { "$gt": ["$fullDocument.deadline", Bson::Null] }] },
        "cancel": is_changed("cancel"),
        "gates": { "$or": [{ "$eq": ["$ns.coll", LOCKS] }, is_changed("awaited")] },
        "freed": is_changed(FREED),
        "wants": is_changed("wants"),
        "document": { "$cond": [
            { "$and": [
                { "$in": ["$ns.coll", [NODES, QUEUES]] }, { "$eq": [{ "$type": "$documentKey._id" }, "objectId"] },
            ] },
            "$documentKey._id", "$$REMOVE",
        ] },
        "update": { "$switch": {
            "branches": [
                {
                    "case": { "$ne": ["$ns.coll", QUEUES] },
                    "then": "$$REMOVE",
                },
                {
                    "case": { "$eq": ["$operationType", "update"] },
                    "then": {
                        "updatedFields": "$updateDescription.updatedFields",
                        "removedFields": "$updateDescription.removedFields",
                    },
                },
                {
                    "case": { "$eq": ["$operationType", "insert"] },
                    "then": { "updatedFields": limits, "removedFields": [] },
                },
            ],
            "default": "$$REMOVE",
        } },
        "task": of_new("$documentKey._id"),
        "queue": of_new("$fullDocument.queue"),
        "at": "$wallTime",
        "time": "$clusterTime",
    }
}

impl Change {
    /// The new task that it tells of, and its queue.
    pub(super) fn arrival(&self) -> Option<(QueueId, TaskId)> {
        Some((QueueId(self.queue?), TaskId(self.task?)))
    }

    /// The queue whose limit has changed, and what it was for a moment at least.
    pub(super) fn peak(&self) -> Option<(QueueId, Peak)> {
        let queue = QueueId(self.document.filter(|_| self.of == QUEUES)?);
        match &self.update {
            Some(update) if self.new => Some((queue, update.made())),
            Some(update) => Some((queue, update.peak()?)),
            None => Some((queue, Peak::Unknown)),
        }
    }

    /// What it means for `node`. A node that is not known yet may be any.
    pub(super) fn news(&self, node: Option<ObjectId>) -> News {
        let mut news = News::default();
        match self.of.as_str() {
            // A queue may have its plugin now, or not any more.
            QUEUES | WORKERS => news.queues_changed = true,
            LOCKS => news.gates = true,
            SUBSCRIPTIONS => news.subscriptions = true,
            FREE_SLOTS => news.freed = true,
            NODES if self.wants => news.wanted = node.is_none() || self.document != node,
            NODES => news.node_changed = node.is_none() || self.document == node,
            _ => {
                news.attention = self.cancel;
                news.gates = self.gates;
                news.freed = self.freed;
                news.inserted = self.queued && self.new;
                news.put_back = self.queued && !self.new;
                news.timed = self.timed;
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(change: Document) -> News {
        let change: Change = bson::deserialize_from_document(change).unwrap();
        change.news(Some(ObjectId::from_bytes([1; 12])))
    }

    #[test]
    fn a_change_of_a_task_is_told_as_what_it_means() {
        let nothing = News::default();
        let of_a_task = |new: bool, queued: bool, timed: bool, cancel: bool| {
            news(doc! { "of": "tasks", "new": new, "queued": queued, "timed": timed, "cancel": cancel })
        };
        assert_eq!(of_a_task(true, true, false, false), News { inserted: true, ..nothing });
        assert_eq!(of_a_task(true, true, true, false), News { inserted: true, timed: true, ..nothing });
        assert_eq!(of_a_task(true, false, true, false), News { timed: true, ..nothing });
        assert_eq!(of_a_task(false, true, false, false), News { put_back: true, ..nothing });
        assert_eq!(of_a_task(false, false, false, true), News { attention: true, ..nothing });
        for of in ["queues", "workers"] {
            assert_eq!(news(doc! { "of": of }), News { queues_changed: true, ..nothing });
        }
        assert_eq!(news(doc! { "of": "subscriptions" }), News { subscriptions: true, ..nothing });
        assert_eq!(news(doc! { "of": "tasks", "gates": true }), News { gates: true, ..nothing });
        assert_eq!(news(doc! { "of": "tasks", "freed": true }), News { freed: true, ..nothing });
        assert_eq!(news(doc! { "of": "locks", "gates": true }), News { gates: true, ..nothing });
    }

    #[test]
    fn a_limit_is_told_by_what_it_was_set_to() {
        let id = ObjectId::from_bytes([1; 12]);
        let peak = |updated: Document, removed: &[&str]| {
            let update = doc! { "updatedFields": updated, "removedFields": removed };
            let change = doc! { "of": "queues", "document": id, "update": update };
            let change: Change = bson::deserialize_from_document(change).unwrap();
            change.peak().map(|(queue, peak)| (queue.0 == id, peak))
        };
        assert_eq!(peak(doc! { "threads": 5_i64, "name": "q" }, &["sort"]), Some((true, Peak::Threads(5))));
        assert_eq!(peak(doc! { "threads": 5.0 }, &[]), Some((true, Peak::Threads(5))));
        assert_eq!(peak(doc! { "threads": -5 }, &[]), Some((true, Peak::Threads(0))));
        assert_eq!(peak(doc! { "threads": "5" }, &[]), Some((true, Peak::Unknown)));
        assert_eq!(peak(doc! {}, &["threads"]), Some((true, Peak::Threads(0))));
        assert_eq!(peak(doc! { "threads": 5, "paused": false }, &[]), Some((true, Peak::Unknown)));
        assert_eq!(peak(doc! { "threads": 5 }, &["paused"]), Some((true, Peak::Unknown)));
        assert_eq!(peak(doc! { "group_threads": 5 }, &[]), Some((true, Peak::Unknown)));
        assert_eq!(peak(doc! { "weights.a": 5 }, &[]), None);
        let made = |fields: Document| {
            let update = doc! { "updatedFields": fields, "removedFields": [] };
            let change = doc! { "of": "queues", "document": id, "new": true, "update": update };
            bson::deserialize_from_document::<Change>(change).unwrap().peak().map(|(_, peak)| peak)
        };
        assert_eq!(made(doc! { "threads": 5, "policy": Bson::Null, "paused": true }), Some(Peak::Made(5)));
        for unknown in [doc! {}, doc! { "threads": "5" }, doc! { "threads": 5, "policy": "fair" }] {
            assert_eq!(made(unknown), Some(Peak::Unknown));
        }
        let told = |change: Document| bson::deserialize_from_document::<Change>(change).unwrap().peak();
        assert_eq!(told(doc! { "of": "queues", "document": id }), Some((QueueId(id), Peak::Unknown)));
        assert_eq!(told(doc! { "of": "nodes", "document": id }), None);
    }

    #[test]
    fn only_the_own_node_matters() {
        let of = |id: u8| doc! { "of": "nodes", "document": ObjectId::from_bytes([id; 12]) };
        assert_eq!(news(of(1)), News { node_changed: true, ..News::default() });
        assert_eq!(news(of(2)), News::default());
        let any: Change = bson::deserialize_from_document(of(2)).unwrap();
        assert!(any.news(None).node_changed);
    }
}
