//! Cancel: a task that waits ends at once (-> -5); one that runs is asked to end, and its runner does it.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::external::{DETACHED, attached, is_detached};
use super::transition::Transition;
use crate::model::{NodeName, QueueId, Status, TaskId, whole_number};
use crate::store::{Store, StoreError, Stored};

/// Who wants a task's end, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    /// Who, for the record.
    pub by: String,
    /// Why, if that was said.
    pub reason: Option<String>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It had not run, and will not.
    Cancelled,
    /// It runs; its runner has been asked. Or its end is being made, whichever that is; it is not tried again after that.
    Requested,
    /// A web service worked on it. It has ended.
    Terminated,
    /// It has ended before.
    Ended(Status),
    /// There is no such task.
    NoSuchTask,
}

impl CancelRequest {
    fn note(&self) -> String {
        match &self.reason {
            Some(reason) => format!("cancelled by {}: {reason}", self.by),
            None => format!("cancelled by {}", self.by),
        }
    }

    pub(super) fn document(&self, store: &Store) -> Document {
        let mut document = doc! { "at": store.now(), "by": &self.by };
        if let Some(reason) = &self.reason {
            document.insert("reason", reason);
        }
        document
    }
}

impl Store {
    /// Cancels a task. One that waits or is claimed ends by one update; whoever wanted to claim or start it
    /// finds it gone. One that runs gets a request that its runner sees at the latest when it renews its
    /// lease, and at once if the DEN of its node lives. One that a web service works on ends. Asking twice changes
    /// nothing.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation(task = %id)]
    pub async fn cancel_task(&self, id: TaskId, request: &CancelRequest) -> Result<Cancelled, StoreError> {
        loop {
            let waiting = doc! { "_id": id, "status": { "$in": [-7, -4, -2, -1] } };
            let cancelled = Transition::to(Status::Cancelled, self.now())
                .set("cancel", request.document(self))
                .end_of_run()
                .end_of_block()
                .note(request.note());
            let before = self
                .tasks()
                .find_one_and_update(waiting, cancelled.pipeline())
                .projection(doc! { "queue": 1, "status": 1 })
                .await
                .inspect_err(|_| self.doubt_counters())?;
            if let Some(before) = before {
                if let (Ok(queue), Some(status)) =
                    (before.get_object_id("queue"), before.get("status").and_then(whole_number))
                {
                    let from = Status::from_code(status);
                    self.moved(QueueId(queue), Some(from), Some(Status::Cancelled), 1);
                }
                return Ok(Cancelled::Cancelled);
            }
            let running = doc! {
                "_id": id, "status": Status::Running, "cancel": Bson::Null, DETACHED: attached(),
            };
            let ask = doc! { "$set": { "cancel": request.document(self) } };
            let asked = self.tasks().update_one(running, ask).await?.matched_count == 1;
            let Some(task) = self.find_task(id).await? else {
                let archived = self.find_archived(id).await?;
                return Ok(archived.map_or(Cancelled::NoSuchTask, |task| Cancelled::Ended(task.status)));
            };
            match task.status {
                Status::Running if is_detached(&task) => {
                    if let Some(cancelled) = Box::pin(self.cancel_external(id, request)).await? {
                        return Ok(cancelled);
                    }
                    // It has gone on since it was read: once more.
                }
                // A service has ended it and it has been started anew since it was asked for: once more.
                Status::Running if !task.rest.get("cancel").is_some_and(|cancel| *cancel != Bson::Null) => {}
                Status::Running => {
                    if let Some(node) = task.node.as_ref().and_then(Bson::as_str) {
                        self.call_attention(&NodeName::new(node), id).await?;
                    }
                    return Ok(Cancelled::Requested);
                }
                // It has ended because of this request already.
                Status::Terminated if asked => return Ok(Cancelled::Requested),
                // Between the two updates it was given back, or became due: once more.
                Status::Deferred | Status::Blocked | Status::Queued | Status::Claimed => {}
                ended => return Ok(Cancelled::Ended(ended)),
            }
        }
    }

    /// The running tasks of `node` whose end somebody has asked for.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation]
    pub async fn cancel_requests(&self, node: &NodeName) -> Result<Vec<TaskId>, StoreError> {
        let asked = doc! {
            "node": node, "status": Status::Running, "cancel": { "$type": "object" }, DETACHED: attached(),
        };
        let found = self.tasks().find(asked).projection(doc! { "_id": 1 }).await?;
        let documents: Vec<Stored> = found.try_collect().await?;
        Ok(documents.iter().filter_map(|task| task.get_object_id("_id").ok()).map(TaskId).collect())
    }

    /// Tells the DEN of `node` that the end of `task` was asked for. The DEN sees it with its next
    /// heartbeat; nothing depends on it.
    ///
    /// # Errors
    /// The database cannot be reached.
    async fn call_attention(&self, node: &NodeName, task: TaskId) -> Result<(), StoreError> {
        self.nodes().update_one(doc! { "node": node }, doc! { "$addToSet": { "attention": task } }).await?;
        Ok(())
    }

    /// Notes that the DEN of `node` has told the runners of `tasks`.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation]
    pub async fn attention_paid(&self, node: &NodeName, tasks: &[TaskId]) -> Result<(), StoreError> {
        let tasks: Vec<_> = tasks.iter().map(|task| task.0).collect();
        self.nodes().update_one(doc! { "node": node }, doc! { "$pullAll": { "attention": tasks } }).await?;
        Ok(())
    }
}
