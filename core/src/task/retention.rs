//! Retention: which ended tasks a queue's policy wants archived or deleted.
//!
//! Tasks are found by the index `{queue, status}`, one status after the other. Within a queue and a status the
//! index is in the order of creation, in which tasks also grow old, more or less; so it is enough to look at
//! the first [`LOOKED_AT`] of each, and no look reads more than that, however many tasks are kept.

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::options::Hint;

use super::archive;
use crate::model::{Queue, QueueId, Retention, TaskId};
use crate::store::collections::{QUEUES, TASKS};
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// At most so many tasks of a queue and a status are looked at at once.
const LOOKED_AT: i64 = 5_000;

/// Plugins may invent statuses; of a queue, so many are looked at.
const STATUSES: usize = 64;

/// Where tasks may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `tasks`.
    Tasks,
    /// `tasks.archive`.
    Archive,
}

impl Place {
    const fn collection(self) -> &'static str {
        match self {
            Self::Tasks => TASKS.name,
            Self::Archive => archive::COLLECTION,
        }
    }
}

impl Store {
    /// The queues that do not keep their tasks for ever, with their policy.
    #[operation]
    pub async fn queues_with_retention(&self) -> Result<Vec<(Queue, Retention)>, StoreError> {
        let found = self.queues().find(doc! { "retention": { "$type": "object" } }).await?;
        let documents: Vec<Document> = found.map_ok(Document::from).try_collect().await?;
        let readable = |document| {
            let queue: Queue = typed(QUEUES.name, document).ok()?;
            let retention = Retention::of(&queue);
            (!retention.is_none()).then_some((queue, retention))
        };
        Ok(documents.into_iter().filter_map(readable).collect())
    }

    /// Up to `limit` tasks of `queue` in `place` that ended longer than `age` ago, by the server's clock.
    #[operation(queue = %queue, ?place)]
    pub async fn ended_before(
        &self,
        queue: QueueId,
        place: Place,
        age: Duration,
        limit: usize,
    ) -> Result<Vec<TaskId>, StoreError> {
        let collection = self.database().collection::<Document>(place.collection());
        let mut found: Vec<TaskId> = Vec::new();
        for status in self.ended_statuses(queue, place).await? {
            let Some(room) = limit.checked_sub(found.len()).filter(|room| *room > 0) else { break };
            let pipeline = old_tasks(queue, &status, age, room);
            let old = collection.aggregate(pipeline).hint(by_queue_and_status()).await?;
            let old: Vec<Document> = old.try_collect().await?;
            found.extend(old.iter().filter_map(|task| task.get_object_id("_id").ok()).map(TaskId));
        }
        Ok(found)
    }

    /// How the server looks for the tasks of [`Store::ended_before`] with one status.
    #[operation]
    pub async fn explain_ended_before(
        &self,
        queue: QueueId,
        status: &Bson,
        age: Duration,
    ) -> Result<Document, StoreError> {
        let aggregate = doc! {
            "aggregate": TASKS.name, "pipeline": old_tasks(queue, status, age, 500), "cursor": {},
            "hint": { "queue": 1, "status": 1 },
        };
        let explain = doc! { "explain": aggregate, "verbosity": "executionStats" };
        Ok(self.database().run_command(explain).await?)
    }

    /// The statuses of ended tasks that `queue` has, by one look into the index for each.
    async fn ended_statuses(&self, queue: QueueId, place: Place) -> Result<Vec<Bson>, StoreError> {
        let collection = self.database().collection::<Document>(place.collection());
        let mut statuses = [-6, -5, -3].map(Bson::from).to_vec();
        let mut further = doc! { "$gte": 1 };
        while statuses.len() < STATUSES {
            let next = collection
                .find_one(doc! { "queue": queue, "status": further })
                .sort(doc! { "queue": 1, "status": 1 })
                .hint(by_queue_and_status())
                .projection(doc! { "_id": 0, "status": 1 });
            let Some(status) = next.await?.and_then(|mut task| task.remove("status")) else { break };
            further = doc! { "$gt": &status };
            statuses.push(status);
        }
        Ok(statuses)
    }
}

fn by_queue_and_status() -> Hint {
    Hint::Keys(doc! { "queue": 1, "status": 1 })
}

fn old_tasks(queue: QueueId, status: &Bson, age: Duration, limit: usize) -> Vec<Document> {
    vec![
        doc! { "$match": { "queue": queue, "status": status } },
        // Before the age is looked at: this is what bounds the work.
        doc! { "$limit": LOOKED_AT },
        doc! { "$match": { "$expr": unchanged_since(server_time_before("$$NOW", age)) } },
        doc! { "$limit": i64::try_from(limit).unwrap_or(i64::MAX) },
        doc! { "$project": { "_id": 1 } },
    ]
}

/// The server's time so long ago.
pub(crate) fn server_time_before(now: impl Into<Bson>, age: Duration) -> Document {
    doc! { "$subtract": [now.into(), super::transition::millis(age)] }
}

/// A condition: the last change of a task was not after `limit`. Old documents hold the time as epoch seconds;
/// those count too. One without a time is never old.
pub(crate) fn unchanged_since(limit: Document) -> Document {
    let epoch = doc! { "$convert": {
        "input": { "$multiply": [{ "$toLong": "$mtime" }, 1000] }, "to": "date",
        "onError": "$$NOW", "onNull": "$$NOW",
    } };
    let changed = doc! { "$switch": {
        "branches": [
            { "case": { "$eq": [{ "$type": "$mtime" }, "date"] }, "then": "$mtime" },
            { "case": { "$in": [{ "$type": "$mtime" }, ["int", "long"]] }, "then": epoch },
        ],
        "default": "$$NOW",
    } };
    doc! { "$lte": [changed, limit] }
}
