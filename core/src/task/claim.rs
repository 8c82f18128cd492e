//! Claim: a DEN takes the next queued task of a queue (-2 -> -1), or gives one back (-1 -> -2).

use bson::{Document, doc};
use mongodb::options::FindOneAndUpdateOptions;

use crate::model::{NodeName, Queue, QueueId, Sort, Status, Task, TaskId};
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// A claimed task, not started yet: launch its runner with it, or give it back.
#[derive(Debug)]
#[must_use = "a claimed task must be launched or unclaimed, else it becomes an orphan"]
pub struct Claim {
    /// The task.
    pub task: TaskId,
    /// Its queue.
    pub queue: QueueId,
    /// The node in whose name it was claimed.
    pub node: NodeName,
}

/// What became of a claim that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaimed {
    /// The task is queued again.
    Queued,
    /// Its runner has started it, or someone else has changed it: it is not ours to give back.
    NotClaimed,
}

impl Store {
    /// Claims the next task of `queue` for `node`, in the queue's order. `None`: there is none.
    ///
    /// The one update matches a queued task that no node has and gives it to this one, so no two DENs can
    /// claim the same task (Disbatch 4 design, Task Lifecycle).
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(queue = %queue.id), err(level = "debug"))]
    pub async fn claim_task(&self, queue: &Queue, node: &NodeName) -> Result<Option<Claim>, StoreError> {
        let filter = doc! {
            "$or": [{ "node": bson::Bson::Null }, { "node": -1 }],
            "status": Status::Queued,
            "queue": queue.id,
        };
        let update = doc! { "$set": { "node": node, "status": Status::Claimed, "mtime": self.now() } };
        let claimed = self
            .tasks()
            .find_one_and_update(filter, update)
            .with_options(
                FindOneAndUpdateOptions::builder().projection(doc! { "_id": 1 }).sort(order(queue)).build(),
            )
            .await?;
        let id = claimed.and_then(|task| task.get_object_id("_id").ok());
        Ok(id.map(|id| Claim { task: TaskId(id), queue: queue.id, node: node.clone() }))
    }

    /// Gives a claimed task back to its queue. Nothing happens if its runner has started it meanwhile.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(task = %claim.task), err(level = "debug"))]
    pub async fn unclaim_task(&self, claim: &Claim) -> Result<Unclaimed, StoreError> {
        let filter = doc! { "_id": claim.task, "node": &claim.node, "status": Status::Claimed };
        let result = self.tasks().update_one(filter, unclaim(self)).await?;
        Ok(if result.matched_count == 1 { Unclaimed::Queued } else { Unclaimed::NotClaimed })
    }

    /// Gives back every task that `node` has claimed and no runner has started, save those in `except`.
    /// Returns how many.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn unclaim_all(&self, node: &NodeName, except: &[TaskId]) -> Result<u64, StoreError> {
        let mut filter = doc! { "node": node, "status": Status::Claimed };
        if !except.is_empty() {
            filter.insert("_id", doc! { "$nin": except.iter().map(|id| id.0).collect::<Vec<_>>() });
        }
        Ok(self.tasks().update_many(filter, unclaim(self)).await?.modified_count)
    }

    /// How many tasks `node` has claimed or running.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn running_on_node(&self, node: &NodeName) -> Result<u64, StoreError> {
        Ok(self.tasks().count_documents(doc! { "node": node, "status": { "$in": [-1, 0] } }).await?)
    }

    /// One task. `None`: there is none with this id.
    ///
    /// # Errors
    /// The database cannot be reached, or the document cannot be understood.
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn find_task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        let found = self.tasks().find_one(doc! { "_id": id }).await?;
        found.map(|document| typed("tasks", document)).transpose()
    }
}

fn unclaim(store: &Store) -> Document {
    doc! { "$set": { "node": bson::Bson::Null, "status": Status::Queued, "mtime": store.now() } }
}

fn order(queue: &Queue) -> Option<Document> {
    match queue.sort_order() {
        Ok(Sort::Fifo) => Some(doc! { "_id": 1 }),
        Ok(Sort::Lifo) => Some(doc! { "_id": -1 }),
        Ok(Sort::Default) => None,
        Err(unknown) => {
            tracing::warn!(queue = %queue.id, sort = %unknown, "unknown sort, using the default order");
            None
        }
    }
}
