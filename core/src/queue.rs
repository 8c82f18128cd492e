//! Queues: what may be done with them, and how their tasks are counted.

use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;

use crate::model::{Queue, QueueId, Selector};
use crate::node::Updated;
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// How many tasks a queue has in each [`crate::model::Phase`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// `status <= -2`.
    pub queued: u64,
    /// -1 and 0.
    pub running: u64,
    /// `status >= 1`.
    pub completed: u64,
}

impl Store {
    /// All queues in the server's order. A document that is no queue (no usable `_id`) is logged and left out.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        let documents: Vec<Document> = self.queues().find(doc! {}).await?.try_collect().await?;
        let readable = |document| {
            typed("queues", document)
                .inspect_err(|error| tracing::warn!(%error, "ignoring a queue that cannot be read"))
                .ok()
        };
        Ok(documents.into_iter().filter_map(readable).collect())
    }

    /// One queue. A name also finds a queue whose name was stored as a number.
    ///
    /// # Errors
    /// The database cannot be reached, or the document cannot be understood.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn find_queue(&self, selector: &Selector) -> Result<Option<Queue>, StoreError> {
        let found = self.queues().find_one(liberal_queue_filter(selector)).await?;
        found.map(|document| typed("queues", document)).transpose()
    }

    /// Creates a queue. Its name and plugin have been validated by the caller.
    ///
    /// # Errors
    /// The name is taken ([`StoreError::write_failure`] says so), or the database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn create_queue(&self, id: QueueId, name: Bson, plugin: Bson) -> Result<(), StoreError> {
        self.queues().insert_one(doc! { "_id": id, "name": name, "plugin": plugin }).await?;
        Ok(())
    }

    /// Sets fields of a queue. The caller has validated them.
    ///
    /// # Errors
    /// The new name is taken ([`StoreError::write_failure`] says so), or the database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn update_queue(&self, selector: &Selector, fields: Document) -> Result<Updated, StoreError> {
        let result = self.queues().update_one(queue_filter(selector), doc! { "$set": fields }).await?;
        Ok(Updated { matched: result.matched_count, modified: result.modified_count })
    }

    /// Deletes a queue, leaving its tasks. Returns how many were deleted: 0 or 1.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn delete_queue(&self, selector: &Selector) -> Result<u64, StoreError> {
        Ok(self.queues().delete_one(queue_filter(selector)).await?.deleted_count)
    }

    /// How many tasks a queue has, by phase.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn count_queue(&self, queue: QueueId) -> Result<Counts, StoreError> {
        let tasks = self.tasks();
        let count =
            |status: Document| tasks.count_documents(doc! { "queue": queue, "status": status }).into_future();
        let (queued, running, completed) = futures::try_join!(
            count(doc! { "$lte": -2 }),
            count(doc! { "$in": [-1, 0] }),
            count(doc! { "$gte": 1 }),
        )?;
        Ok(Counts { queued, running, completed })
    }

    /// How many tasks of each of `queues` are claimed or running, over all DENs.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn running_by_queue(&self, queues: &[QueueId]) -> Result<HashMap<QueueId, u64>, StoreError> {
        let pipeline = [
            doc! { "$match": { "queue": { "$in": queues.iter().map(|id| id.0).collect::<Vec<_>>() },
            "status": { "$in": [-1, 0] } } },
            doc! { "$group": { "_id": "$queue", "running": { "$sum": 1 } } },
        ];
        let groups: Vec<Document> = self.tasks().aggregate(pipeline).await?.try_collect().await?;
        Ok(groups.iter().filter_map(group).collect())
    }
}

fn group(document: &Document) -> Option<(QueueId, u64)> {
    let id = document.get_object_id("_id").ok()?;
    let running = document.get("running").and_then(|n| n.as_i64().or_else(|| n.as_i32().map(i64::from)))?;
    Some((QueueId(id), u64::try_from(running).unwrap_or(0)))
}

fn queue_filter(selector: &Selector) -> Document {
    match selector {
        Selector::Id(id) => doc! { "_id": id },
        Selector::Name(name) => doc! { "name": name },
    }
}

/// Perl compares names as text when it reads a queue, and by type when it changes one.
fn liberal_queue_filter(selector: &Selector) -> Document {
    match selector {
        Selector::Name(name) => match name.parse::<i64>() {
            Ok(number) if number.to_string() == *name => doc! { "name": { "$in": [name, number] } },
            _ => queue_filter(selector),
        },
        Selector::Id(_) => queue_filter(selector),
    }
}

/// A new queue's id.
pub fn new_queue_id() -> QueueId {
    QueueId(ObjectId::new())
}
