//! What people change of a task that has not ended. They cancel it: one that waits ends at once (-> -5); one that runs is asked to end,
//! and its runner does it. Or one that waits starts now in place of later, or before others.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;

use super::aside::Unfit;
use super::external::{DETACHED, attached, is_detached};
use super::retry::Retried;
use super::sweep::{undeferred, waiting};
use super::transition::Transition;
use crate::budget::{CANCEL, cut};
use crate::model::{AWAITING, NodeName, QueueId, Status, TaskId, whole_number};
use crate::store::{Store, StoreError, collect_ids, put, with};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    pub by: String,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It had not run, and will not.
    Cancelled,
    /// It runs; its runner has been asked. Or its end is being made, whichever that is; it is not tried again after that.
    Requested,
    /// A web service worked on it. It has ended.
    Terminated,
    Ended(Status),
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
        let mut document = doc! { "at": store.now(), "by": cut(&self.by, CANCEL / 4) };
        put(&mut document, "reason", self.reason.as_ref().map(|reason| cut(reason, CANCEL / 2)));
        document
    }
}

/// Matches a task whose end nobody has asked for: after that it has no other attempt.
pub(super) fn unasked() -> Document {
    doc! { "cancel": { "$not": { "$type": "object" } } }
}

/// The server refuses even its end.
fn cannot_be_changed(id: TaskId) -> StoreError {
    StoreError::unfit(&format!("the database refuses every change of the task {id}; see its explanation"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prioritised {
    /// `before`: what it had; `None`: none of its own.
    Set {
        queue: QueueId,
        before: Option<i64>,
    },
    NotWaiting(Status),
    NoSuchTask,
}

impl Store {
    /// Cancels a task. One that waits or is claimed ends by one update; whoever wanted to claim or start it
    /// finds it gone. One that runs gets a request that its runner sees at the latest when it renews its
    /// lease, and at once if the DEN of its node lives. One that a web service works on ends. Asking twice changes
    /// nothing.
    #[operation(task = %id)]
    pub async fn cancel_task(&self, id: TaskId, request: &CancelRequest) -> Result<Cancelled, StoreError> {
        loop {
            match self.cancel_waiting(id, request).await? {
                Unfit::Ended => return Ok(Cancelled::Cancelled),
                Unfit::Aside => return Err(cannot_be_changed(id)),
                Unfit::Changed => {}
            }
            let running = doc! {
                "_id": id, "status": Status::Running, "cancel": Bson::Null, DETACHED: attached(),
            };
            let Some(asked) = self.ask_for_end(id, running, request).await? else {
                return Ok(Cancelled::Terminated);
            };
            let task = match self.find_task(id).await {
                Err(error) if error.is_about_one() => {
                    // Nobody who runs it could read it either.
                    let runs = doc! { "status": Status::Running };
                    return match self.end_unfit(id, &runs, Status::Terminated, error).await? {
                        Unfit::Ended => Ok(Cancelled::Terminated),
                        Unfit::Changed | Unfit::Aside => Err(cannot_be_changed(id)),
                    };
                }
                task => task?,
            };
            let Some(task) = task else {
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
                        // Its DEN sees it with its next heartbeat; nothing depends on it.
                        let call = doc! { "$addToSet": { "attention": id } };
                        self.nodes().update_one(doc! { "node": node }, call).await?;
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

    async fn cancel_waiting(&self, id: TaskId, request: &CancelRequest) -> Result<Unfit, StoreError> {
        let waits = doc! { "status": { "$in": [-7, -4, -2, -1] } };
        let waiting = with(doc! { "_id": id }, waits.clone());
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
            .inspect_err(|_| self.doubt_counters());
        let before = match before.map_err(StoreError::from) {
            Err(error) if error.is_about_one() => {
                return self.end_unfit(id, &waits, Status::Cancelled, error).await;
            }
            before => before?,
        };
        let Some(before) = before else { return Ok(Unfit::Changed) };
        self.moved_from(&before, Some(Status::Cancelled));
        Ok(Unfit::Ended)
    }

    /// Asks the runner of a task for its end; returns whether it was asked. A task that has no room for that loses its history; if that
    /// does not help either, it is taken from its runner, which then ends the plugin: `None`.
    async fn ask_for_end(
        &self,
        id: TaskId,
        running: Document,
        request: &CancelRequest,
    ) -> Result<Option<bool>, StoreError> {
        let ask = Transition::within().set("cancel", request.document(self));
        for ask in [ask.clone(), ask.without_history()] {
            match self.tasks().update_one(running.clone(), ask.pipeline()).await.map_err(StoreError::from) {
                Err(error) if error.is_about_one() => {}
                asked => return Ok(Some(asked?.matched_count == 1)),
            }
        }
        let error = StoreError::unfit("the task has no room for a request to end it");
        match self.end_unfit(id, &doc! { "status": Status::Running }, Status::Terminated, error).await? {
            Unfit::Ended => Ok(None),
            Unfit::Changed => Ok(Some(false)),
            Unfit::Aside => Err(cannot_be_changed(id)),
        }
    }

    #[operation]
    pub async fn cancel_requests(&self, node: &NodeName) -> Result<Vec<TaskId>, StoreError> {
        let asked = doc! {
            "node": node, "status": Status::Running, "cancel": { "$type": "object" }, DETACHED: attached(),
        };
        let found = collect_ids(self.tasks().find(asked).projection(doc! { "_id": 1 })).await?;
        Ok(found.into_iter().map(TaskId).collect())
    }

    /// Notes that the DEN of `node` has told the runners of `tasks`.
    #[operation]
    pub async fn attention_paid(&self, node: &NodeName, tasks: &[TaskId]) -> Result<(), StoreError> {
        self.nodes().update_one(doc! { "node": node }, doc! { "$pullAll": { "attention": tasks } }).await?;
        Ok(())
    }

    /// Lets a deferred task go on before its time (-7 -> -2, or -4 if it has locks), with its attempts and failures as they are.
    /// Its time is now: the gates would have it wait for a later one. One that waits for an answer does not go on without.
    /// Of this and a DEN that finds it due, one does it.
    #[operation(task = %id)]
    pub async fn run_now(&self, id: TaskId, note: &str) -> Result<Retried, StoreError> {
        let deferred = doc! { "_id": id, "status": Status::Deferred, AWAITING: Bson::Null };
        Ok(match self.undefer(id, &deferred, |to| undeferred(to, self.now(), note)).await? {
            Some(Status::Blocked) => Retried::Blocked,
            Some(_) => Retried::Queued,
            None => self.status_of(id).await?.map_or(Retried::NoSuchTask, Retried::NotEnded),
        })
    }

    /// Lets a deferred task go on by `update`, which gets the status that it will have. Returns that; `None`: the task is not like
    /// `deferred`. Its time is now.
    pub(super) async fn undefer(
        &self,
        id: TaskId,
        deferred: &Document,
        update: impl Fn(Status) -> Transition,
    ) -> Result<Option<Status>, StoreError> {
        let tasks = self.tasks();
        for (has_locks, to) in [(false, Status::Queued), (true, Status::Blocked)] {
            let deferred = with(deferred.clone(), doc! { "locks.0": { "$exists": has_locks } });
            // The gates would have it wait for a later time.
            let update = update(to).compute("run_at", "$$NOW").pipeline();
            let before = tasks.find_one_and_update(deferred, update).projection(doc! { "queue": 1 });
            let Some(before) = before.await.inspect_err(|_| self.doubt_counters())? else { continue };
            if let Ok(queue) = before.get_object_id("queue") {
                self.moved(QueueId(queue), Some(Status::Deferred), Some(to), 1);
            }
            if to == Status::Blocked {
                self.link_at_once(&[id]).await;
            }
            return Ok(Some(to));
        }
        Ok(None)
    }

    /// Gives a task that waits (-2, -4 or -7) another priority. Queues that do not go by priority keep it, and do not look at it.
    #[operation(task = %id)]
    pub async fn set_priority(&self, id: TaskId, priority: i64) -> Result<Prioritised, StoreError> {
        let filter = with(doc! { "_id": id }, waiting());
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

    async fn status_of(&self, id: TaskId) -> Result<Option<Status>, StoreError> {
        let found = self.find_task_fields(id, doc! { "status": 1 }).await?;
        Ok(found.as_ref().and_then(Status::stored))
    }
}
