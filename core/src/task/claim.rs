//! Claim: a DEN takes the next queued task of a queue (-2 -> -1), or gives one back (-1 -> -2).

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::options::{FindOneAndUpdateOptions, ReturnDocument};

use super::transition::{Transition, server_time_in};
use crate::model::{NodeName, Queue, QueueId, Sort, Status, Task, TaskId, whole_number};
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// Who claims.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// The node.
    pub node: NodeName,
    /// This start of its DEN: tells it from the one before that had the same name.
    pub instance: String,
    /// How long the claim holds until its runner has started the task. `None`: for ever, for a runner that
    /// knows nothing of leases.
    pub lease: Option<Duration>,
}

/// A claimed task, not started yet: launch its runner with it, or give it back.
#[derive(Debug)]
#[must_use = "a claimed task must be launched or unclaimed, else it waits for the end of its lease"]
pub struct Claim {
    /// The task.
    pub task: TaskId,
    /// Its queue.
    pub queue: QueueId,
    /// The node in whose name it was claimed.
    pub node: NodeName,
    /// Which claim of the task this is; with the next, the fence of everything that follows.
    pub attempt: i64,
    /// This start of the DEN.
    pub instance: String,
}

/// What came of the attempt to claim.
#[derive(Debug)]
pub enum Claimed {
    /// A task.
    Task(Claim),
    /// The queue has none.
    NothingThere,
    /// Another DEN was faster to take the place. Nothing has changed.
    SlotTaken,
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
    /// Claims the next task of `queue`, in the queue's order, for the place `slot` of those that `threads`
    /// allows.
    ///
    /// The one update matches a queued task that no node has and gives it to this one, so no two DENs can
    /// claim the same task (Disbatch 4 design, Task Lifecycle); and a unique index forbids that two claimed
    /// or running tasks of a queue have the same place, so no number of DENs can claim more than there are
    /// places.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(queue = %queue.id, slot), err(level = "debug"))]
    pub async fn claim_task(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        slot: u64,
    ) -> Result<Claimed, StoreError> {
        let filter = doc! {
            "$or": [{ "node": bson::Bson::Null }, { "node": -1 }],
            "status": Status::Queued,
            "queue": queue.id,
        };
        let lease =
            claimant.lease.map_or_else(|| Bson::from("$$REMOVE"), |lease| server_time_in(lease).into());
        let update = Transition::to(Status::Claimed, self.now())
            .set("node", &claimant.node)
            .set("instance", claimant.instance.as_str())
            .set("slot", i64::try_from(slot).unwrap_or(i64::MAX))
            .compute("attempt", doc! { "$add": [{ "$ifNull": ["$attempt", 0] }, 1] })
            .compute("lease_until", lease)
            .pipeline();
        let options = FindOneAndUpdateOptions::builder()
            .projection(doc! { "_id": 1, "attempt": 1 })
            .return_document(ReturnDocument::After)
            .sort(order(queue))
            .build();
        let claimed = self.tasks().find_one_and_update(filter, update).with_options(options).await;
        let task = match claimed.map_err(StoreError::from) {
            Ok(Some(task)) => task,
            Ok(None) => return Ok(Claimed::NothingThere),
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                return Ok(Claimed::SlotTaken);
            }
            Err(error) => return Err(error),
        };
        let attempt = task.get("attempt").and_then(whole_number).unwrap_or(0);
        Ok(task.get_object_id("_id").map_or(Claimed::NothingThere, |id| {
            Claimed::Task(Claim {
                task: TaskId(id),
                queue: queue.id,
                node: claimant.node.clone(),
                attempt,
                instance: claimant.instance.clone(),
            })
        }))
    }

    /// Gives a claimed task back to its queue. Nothing happens if its runner has started it meanwhile.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(task = %claim.task), err(level = "debug"))]
    pub async fn unclaim_task(&self, claim: &Claim, why: &str) -> Result<Unclaimed, StoreError> {
        let filter = doc! {
            "_id": claim.task, "node": &claim.node, "status": Status::Claimed, "attempt": claim.attempt,
            "instance": &claim.instance,
        };
        let result = self.tasks().update_one(filter, given_back(self, why)).await?;
        Ok(if result.matched_count == 1 { Unclaimed::Queued } else { Unclaimed::NotClaimed })
    }

    /// Gives back every task that `node` has claimed and no runner has started, save those in `except`.
    /// Returns how many.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn unclaim_all(
        &self,
        node: &NodeName,
        except: &[TaskId],
        why: &str,
    ) -> Result<u64, StoreError> {
        let mut filter = doc! { "node": node, "status": Status::Claimed };
        if !except.is_empty() {
            filter.insert("_id", doc! { "$nin": except.iter().map(|id| id.0).collect::<Vec<_>>() });
        }
        Ok(self.tasks().update_many(filter, given_back(self, why)).await?.modified_count)
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

/// Back to the queue. The number of the attempt stays: the next claim gets another.
pub(super) fn given_back(store: &Store, why: &str) -> Vec<Document> {
    Transition::to(Status::Queued, store.now()).without_node().end_of_run().note(why).pipeline()
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
