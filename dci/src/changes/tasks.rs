//! Tasks, arrays and bulk jobs. One task goes to the archive here; for many there are bulk jobs. What is done to elements of arrays is
//! done by bulk jobs, too, which outlive the server that made them. The store makes their entries, as it also ends them.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::arrays::{Array, NewArray, Reopened};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::bulk::{Action, BulkCancelled, BulkFilter, BulkRequest, Queues, Rerun};
use disbatch_core::model::{QueueId, Status, Task, TaskId};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::rerun::Plan;
use disbatch_core::task::{
    CancelRequest, Cancelled, Once, Prioritised, Retried, SubmitError, Submitted, SubmittedArray, TaskOptions,
};

use super::{actor, new_tasks, noted, queue_of, to_the_end};
use crate::access::Who;
use crate::measure;
use crate::state::State;

/// Submits tasks to a queue by what `submission` does. Their parameters are not recorded, but the
/// collection is that they are made of, if they are. A submission that had been made before, under the same key, is no
/// change.
pub async fn submit<E: Send + 'static>(
    state: &State,
    who: &Who,
    queue: QueueId,
    collection: Option<String>,
    submission: impl Future<Output = Result<Submitted, E>> + Send + 'static,
) -> Result<Submitted, E> {
    let submit = move |_: Store, who: Actor| async move {
        let made = submission.await?;
        let is_change = !made.ids.is_empty() && !made.is_repetition;
        let entry = is_change.then(|| submitted(who, queue, collection, &made.ids));
        Ok((made, entry))
    };
    noted(state, actor(who), submit).await
}

pub async fn cancel_task(
    state: &State,
    who: &Who,
    id: TaskId,
    reason: Option<String>,
) -> Result<Cancelled, StoreError> {
    let wish = CancelRequest { by: who.words(), reason };
    let cancel = move |store: Store, who: Actor| async move {
        let fields = doc! { "queue": 1, "status": 1, "cancel": 1 };
        let before = store.find_task_fields(id, fields).await?.unwrap_or_default();
        let cancelled = store.cancel_task(id, &wish).await?;
        let entry = difference(&before, &cancelled).map(|(before, after)| AuditEntry {
            queue: queue_of(&before),
            before: Some(before),
            after: Some(after),
            more: reason_of(wish.reason.as_deref()),
            ..AuditEntry::new(who, Verb::TaskCancel, Object::with_id(ObjectKind::Task, id.0))
        });
        Ok((cancelled, entry))
    };
    noted(state, actor(who), cancel).await
}

/// Queues `task` again, or at once if it is deferred, with a note in its history.
pub async fn retry_task(
    state: &State,
    who: &Who,
    task: &Task,
    reason: Option<String>,
) -> Result<Retried, StoreError> {
    let note = retried_by(who, reason.as_deref());
    let (store, who) = (state.store.clone(), actor(who));
    let (id, queue, status) = (task.id, task.queue, task.status);
    let change = async move {
        let retried = match status {
            Status::Deferred => store.run_now(id, &note).await?,
            _ => store.retry_task(id, &note).await?, // It has ended, or is refused.
        };
        note_retry(&store, who, (id, queue, status), retried, reason.as_deref()).await;
        Ok::<Retried, StoreError>(retried)
    };
    to_the_end(state, change).await
}

pub struct RerunOutcome {
    /// `None`: the task has not ended, and only what comes after it was reset.
    pub task: Option<Retried>,
    /// Those that come after it and wait again.
    pub downstream: Vec<TaskId>,
}

/// Queues `task` again, with other parameters if there are any, and resets what comes after it by `plan`. The caller has checked both.
pub async fn rerun_task(
    state: &State,
    who: &Who,
    (task, params): (&Task, Option<Document>),
    plan: Plan,
    reason: Option<String>,
) -> Result<RerunOutcome, StoreError> {
    let note = retried_by(who, reason.as_deref());
    let (store, who) = (state.store.clone(), actor(who));
    let (id, queue, status) = (task.id, task.queue, task.status);
    let change = async move {
        let mut rerun = RerunOutcome { task: None, downstream: Vec::new() };
        if status.has_ended() || params.is_some() || plan.waiters.is_empty() {
            let retried = match params {
                Some(params) => store.retry_with(id, params, &note).await?,
                None => store.retry_task(id, &note).await?,
            };
            note_retry(&store, who.clone(), (id, queue, status), retried, reason.as_deref()).await;
            rerun.task = Some(retried);
            if !matches!(retried, Retried::Queued | Retried::Blocked) {
                return Ok(rerun);
            }
        }
        for waiter in &plan.waiters {
            let reset = store.reset_waiter(waiter, &note).await?;
            note_retry(
                &store,
                who.clone(),
                (waiter.id, waiter.queue, waiter.status),
                reset,
                reason.as_deref(),
            )
            .await;
            if matches!(reset, Retried::Queued | Retried::Blocked) {
                rerun.downstream.push(waiter.id);
            }
        }
        Ok::<RerunOutcome, StoreError>(rerun)
    };
    to_the_end(state, change).await
}

fn retried_by(who: &Who, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("retried by {}: {reason}", who.words()),
        None => format!("retried by {}", who.words()),
    }
}

/// Notes who has a task tried again that had this status.
async fn note_retry(
    store: &Store,
    who: Actor,
    (id, queue, before): (TaskId, QueueId, Status),
    retried: Retried,
    reason: Option<&str>,
) {
    let now = match retried {
        Retried::Queued => Status::Queued,
        Retried::Blocked => Status::Blocked,
        Retried::NotEnded(_) | Retried::NotUnique(_) | Retried::Refused | Retried::NoSuchTask => return,
    };
    let entry = AuditEntry {
        queue: Some(queue),
        before: Some(doc! { "status": before.code() }),
        after: Some(doc! { "status": now.code() }),
        more: reason_of(reason),
        ..AuditEntry::new(who, Verb::TaskRetry, Object::with_id(ObjectKind::Task, id.0))
    };
    store.note_audit(&entry).await;
}

pub async fn set_priority(
    state: &State,
    who: &Who,
    id: TaskId,
    priority: i64,
    reason: Option<String>,
) -> Result<Prioritised, StoreError> {
    let change = move |store: Store, who: Actor| async move {
        let set = store.set_priority(id, priority).await?;
        let entry = match set {
            Prioritised::Set { queue, before } if before != Some(priority) => Some(AuditEntry {
                queue: Some(queue),
                before: Some(before.map_or_else(Document::new, |before| doc! { "priority": before })),
                after: Some(doc! { "priority": priority }),
                more: reason_of(reason.as_deref()),
                ..AuditEntry::new(who, Verb::TaskPriority, Object::with_id(ObjectKind::Task, id.0))
            }),
            _ => None, // Nothing has changed.
        };
        Ok((set, entry))
    };
    noted(state, actor(who), change).await
}

fn submitted(who: Actor, queue: QueueId, collection: Option<String>, ids: &[TaskId]) -> AuditEntry {
    let mut more = new_tasks(ids);
    more.extend(collection.map(|collection| ("collection".to_owned(), Bson::from(collection))));
    let object = Object::with_id(ObjectKind::Queue, queue.0);
    AuditEntry { queue: Some(queue), more, ..AuditEntry::new(who, Verb::TasksSubmit, object) }
}

fn reason_of(reason: Option<&str>) -> Document {
    reason.map_or_else(Document::new, |reason| doc! { "reason": reason })
}

/// What a cancel has changed of a task. `None`: nothing, as it had ended, or had been asked to end before.
fn difference(task: &Document, cancelled: &Cancelled) -> Option<(Document, Document)> {
    let before = task.clone();
    let mut after = task.clone();
    match cancelled {
        Cancelled::Cancelled => after.insert("status", Status::Cancelled.code()),
        Cancelled::Terminated => after.insert("status", Status::Terminated.code()),
        Cancelled::Requested if task.get("cancel").is_none_or(|asked| *asked == Bson::Null) => {
            after.insert("cancel", "requested")
        }
        Cancelled::Requested | Cancelled::Ended(_) | Cancelled::NoSuchTask => return None,
    };
    Some((before, after))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchivedOne {
    Archived,
    /// It was there before.
    Before,
    NotEnded(Status),
    /// Others wait for it, and have not been told yet that it has ended.
    Awaited,
    NoSuchTask,
}

pub async fn archive_task(state: &State, who: &Who, id: TaskId) -> Result<ArchivedOne, StoreError> {
    let archive = move |store: Store, who: Actor| async move {
        let queue = match look(&store, id).await? {
            Ok(queue) => queue,
            Err(outcome) => return Ok((outcome, None)),
        };
        if store.archive_tasks(&[id]).await?.moved == 0 {
            // Somebody else was faster with it, or with something else.
            return Ok((look(&store, id).await?.err().unwrap_or(ArchivedOne::Awaited), None));
        }
        let entry = AuditEntry::new(who, Verb::TaskArchive, Object::with_id(ObjectKind::Task, id.0));
        Ok((ArchivedOne::Archived, Some(AuditEntry { queue, ..entry })))
    };
    noted(state, actor(who), archive).await
}

/// The queue of a task that has ended and is still among the others, or why it is none.
async fn look(store: &Store, id: TaskId) -> Result<Result<Option<QueueId>, ArchivedOne>, StoreError> {
    let fields = doc! { "queue": 1, "status": 1, "archived": 1 };
    let Some(task) = store.find_task_fields(id, fields).await? else {
        return Ok(Err(ArchivedOne::NoSuchTask));
    };
    if task.contains_key("archived") {
        return Ok(Err(ArchivedOne::Before));
    }
    let status = Status::stored(&task).unwrap_or(Status::Running);
    Ok(if status.has_ended() { Ok(queue_of(&task)) } else { Err(ArchivedOne::NotEnded(status)) })
}

/// Makes a job, and begins with it. Returns its id.
pub async fn create_bulk(state: &State, wanted: BulkRequest) -> Result<ObjectId, StoreError> {
    let (store, worker) = (state.store.clone(), state.bulk.clone());
    let change = async move {
        let job = store.create_bulk(&wanted, worker.instance()).await?;
        let id = job.id;
        worker.start(job);
        Ok::<ObjectId, StoreError>(id)
    };
    to_the_end(state, change).await
}

/// Stops a job. What it has done stays done.
pub async fn cancel_bulk(state: &State, who: &Who, id: ObjectId) -> Result<BulkCancelled, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    to_the_end(state, async move { store.cancel_bulk(id, &who).await }).await
}

/// Submits an array. One that had been submitted before, under the same key, is no change.
pub async fn submit_array(
    state: &State,
    who: &Who,
    queue: QueueId,
    array: NewArray,
    (options, once): (TaskOptions, Option<Once>),
) -> Result<SubmittedArray, SubmitError> {
    let submit = move |store: Store, who: Actor| async move {
        let made = Box::pin(store.submit_array(queue, &array, &options, once.as_ref())).await;
        let made = made.inspect_err(|error| measure::refused_by(store.metrics(), queue, error))?;
        let entry = (!made.is_repetition).then(|| AuditEntry {
            queue: Some(queue),
            more: doc! { "count": i64::from(made.array.count), "array": made.array.id },
            ..AuditEntry::new(who, Verb::TasksSubmit, Object::with_id(ObjectKind::Queue, queue.0))
        });
        Ok((made, entry))
    };
    noted(state, actor(who), submit).await
}

#[derive(Debug)]
pub struct OfElements {
    pub action: Action,
    pub reason: Option<String>,
    /// Also to those that have succeeded.
    pub succeeded: bool,
    pub rerun: Option<Rerun>,
}

impl OfElements {
    pub fn filter(&self, array: &Array) -> BulkFilter {
        let (queue, succeeded) = (Some(Queues::One(array.queue)), self.succeeded);
        BulkFilter { queue, array: Some(array.id), succeeded, ..BulkFilter::default() }
    }
}

/// Has a bulk job cancel the elements of an array, or try some of those again that have ended. Returns its id. `None`: there
/// is no element to do that to.
pub async fn act_on_array(
    state: &State,
    who: &Who,
    array: Array,
    what: OfElements,
) -> Result<Option<ObjectId>, StoreError> {
    let (store, worker, who) = (state.store.clone(), state.bulk.clone(), actor(who));
    let change = async move {
        // A job is for the tasks that there are when it is made.
        store.fill_array(array.id).await?;
        let filter = what.filter(&array);
        let OfElements { action, reason, rerun, .. } = what;
        if store.count_bulk(action, &filter).await? == Some(0) {
            return Ok::<Option<ObjectId>, StoreError>(None);
        }
        if action == Action::Retry && store.reopen_array(array.id).await? != Reopened::Open {
            return Ok(None);
        }
        let wanted = BulkRequest { action, filter, reason, who, rerun };
        let job = store.create_bulk(&wanted, worker.instance()).await?;
        let id = job.id;
        if action == Action::Retry {
            store.hold_array(array.id, id).await?;
        }
        worker.start(job);
        Ok(Some(id))
    };
    to_the_end(state, change).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_changes_the_status_or_asks_once() {
        let task = doc! { "queue": ObjectId::new(), "status": -2_i64 };
        let (before, after) = difference(&task, &Cancelled::Cancelled).unwrap();
        assert_eq!(
            (before.get("status"), after.get("status")),
            (Some(&Bson::Int64(-2)), Some(&Bson::Int64(-5)))
        );
        assert_eq!(queue_of(&before), queue_of(&after));
        let (_, after) = difference(&doc! { "status": 0 }, &Cancelled::Terminated).unwrap();
        assert_eq!(after.get("status"), Some(&Bson::Int64(-3)));
        let (before, after) = difference(&task, &Cancelled::Requested).unwrap();
        assert_eq!((before.get("cancel"), after.get("cancel")), (None, Some(&Bson::from("requested"))));
        let asked = doc! { "status": 0, "cancel": { "by": "somebody" } };
        for nothing in [Cancelled::Requested, Cancelled::Ended(Status::Cancelled), Cancelled::NoSuchTask] {
            assert_eq!(difference(&asked, &nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_submission_is_told_by_its_number_and_its_first_tasks() {
        let ids: Vec<TaskId> = (0..25).map(|_| TaskId(ObjectId::new())).collect();
        let queue = QueueId(ObjectId::new());
        let of = |collection| submitted(Actor::refused("10.0.0.1"), queue, collection, &ids);
        let entry = of(None);
        assert_eq!((entry.queue, entry.object.id), (Some(queue), Some(queue.0)));
        let first: Vec<ObjectId> = ids.iter().take(10).map(|id| id.0).collect();
        assert_eq!(entry.more, doc! { "count": 25_i64, "tasks": &first });
        let made = of(Some("people".to_owned()));
        assert_eq!(made.more, doc! { "count": 25_i64, "tasks": first, "collection": "people" });
    }
}
