//! Bulk jobs and arrays. What is done to elements is done by bulk jobs, which outlive the server that made them. The store makes
//! their entries, as it also ends them.

use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::arrays::{Array, NewArray, Reopened};
use disbatch_core::audit::{AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::bulk::{Action, BulkCancelled, BulkFilter, BulkRequest, Queues, Rerun};
use disbatch_core::model::QueueId;
use disbatch_core::store::StoreError;
use disbatch_core::task::{Once, SubmitError, SubmittedArray, TaskOptions};

use super::{actor, to_the_end};
use crate::access::Who;
use crate::measure;
use crate::state::State;

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
    let (store, actor) = (state.store.clone(), actor(who));
    let change = async move {
        let made = Box::pin(store.submit_array(queue, &array, &options, once.as_ref())).await;
        let made = made.inspect_err(|error| measure::refused_by(store.metrics(), queue, error))?;
        if !made.is_repetition {
            let more = doc! { "count": i64::from(made.array.count), "array": made.array.id };
            let object = Object::with_id(ObjectKind::Queue, queue.0);
            let entry =
                AuditEntry { queue: Some(queue), more, ..AuditEntry::new(actor, Verb::TasksSubmit, object) };
            store.note_audit(&entry).await;
        }
        Ok::<SubmittedArray, SubmitError>(made)
    };
    to_the_end(state, change).await
}

/// What is done to elements of an array.
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
