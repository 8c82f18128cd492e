//! What an operator changes of a task that waits: it starts now in place of later, or before others.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;

use super::retry::Retried;
use super::sweep::{undeferred, waiting};
use crate::model::{AWAITING, QueueId, Status, TaskId, whole_number};
use crate::store::{Store, StoreError};

/// What came of another priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prioritised {
    Set {
        /// Whose task it is.
        queue: QueueId,
        /// What it had before; `None`: none of its own.
        before: Option<i64>,
    },
    /// It waits no more: it is in this status.
    NotWaiting(Status),
    NoSuchTask,
}

impl Store {
    /// Lets a deferred task go on before its time (-7 -> -2, or -4 if it has locks), with its attempts and failures as they are.
    /// Its time is now: the gates would have it wait for a later one. One that waits for an answer does not go on without.
    /// Of this and a DEN that finds it due, one does it.
    #[operation(task = %id)]
    pub async fn run_now(&self, id: TaskId, note: &str) -> Result<Retried, StoreError> {
        for (has_locks, to, outcome) in
            [(false, Status::Queued, Retried::Queued), (true, Status::Blocked, Retried::Blocked)]
        {
            let deferred = doc! {
                "_id": id, "status": Status::Deferred, "locks.0": { "$exists": has_locks }, AWAITING: Bson::Null,
            };
            let update = undeferred(to, self.now(), note).compute("run_at", "$$NOW").pipeline();
            let only = doc! { "queue": 1 };
            let before = self.tasks().find_one_and_update(deferred, update).projection(only).await;
            let Some(before) = before.inspect_err(|_| self.doubt_counters())? else { continue };
            if let Ok(queue) = before.get_object_id("queue") {
                self.moved(QueueId(queue), Some(Status::Deferred), Some(to), 1);
            }
            if to == Status::Blocked {
                self.link_at_once(&[id]).await;
            }
            return Ok(outcome);
        }
        Ok(self.status_of(id).await?.map_or(Retried::NoSuchTask, Retried::NotEnded))
    }

    /// Gives a task that waits (-2, -4 or -7) another priority. Queues that do not go by priority keep it, and do not look at it.
    #[operation(task = %id)]
    pub async fn set_priority(&self, id: TaskId, priority: i64) -> Result<Prioritised, StoreError> {
        let mut filter = doc! { "_id": id };
        filter.extend(waiting());
        let update = doc! { "$set": { "priority": priority } };
        let only = doc! { "queue": 1, "priority": 1 };
        let before = self.tasks().find_one_and_update(filter, update).projection(only).await?;
        if let Some(before) = before.map(Document::from)
            && let Ok(queue) = before.get_object_id("queue")
        {
            let before = before.get("priority").and_then(whole_number);
            return Ok(Prioritised::Set { queue: QueueId(queue), before });
        }
        Ok(self.status_of(id).await?.map_or(Prioritised::NoSuchTask, Prioritised::NotWaiting))
    }

    /// The status of a task, archived or not.
    async fn status_of(&self, id: TaskId) -> Result<Option<Status>, StoreError> {
        let found = self.find_task_fields(id, doc! { "status": 1 }).await?;
        Ok(found.and_then(|task| task.get("status").and_then(whole_number)).map(Status::from_code))
    }
}
