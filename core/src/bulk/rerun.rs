//! What a job does besides that tries elements of an array again: when all of them have been queued, tasks that come after them wait for
//! them again, see [`crate::task::rerun`].

use bson::{Document, doc};
use disbatch_operation::operation;
use serde::{Deserialize, Serialize};

use super::run::{ERRORS, count};
use super::{BulkJob, State};
use crate::model::{ArrayId, QueueId, TaskId};
use crate::store::{Store, StoreError};
use crate::task::Retried;
use crate::task::rerun::Downstream;

/// What is done besides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rerun {
    /// Which tasks that come after the elements wait for them again.
    pub downstream: Downstream,
    /// Only tasks of these queues do: where whoever wants it may.
    pub queues: Vec<QueueId>,
    /// Which parameter of the elements stays what it is, and those that they have besides from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<(String, Document)>,
}

impl Store {
    /// The job that tries elements of an array again, as long as it runs.
    #[operation(%array)]
    pub async fn find_bulk_of_array(&self, array: ArrayId) -> Result<Option<BulkJob>, StoreError> {
        let found = self.arrays().find_one(doc! { "_id": array }).projection(doc! { "retrying": 1 }).await?;
        let job = found.and_then(|array| array.get_object_id("retrying").ok());
        let Some(job) = job else { return Ok(None) };
        Ok(self.find_bulk(job).await?.filter(|job| job.state == State::Running))
    }

    /// Has tasks wait again that come after those which this job has queued again. Whoever takes the job over at this point leaves out
    /// what has the job's note, as it may have ended again since.
    #[operation(job = %job.id)]
    pub(super) async fn reset_downstream(&self, job: &BulkJob, rerun: &Rerun) -> Result<(), StoreError> {
        let Some(array) = job.which()?.array else { return Ok(()) };
        let Some(array) = self.find_array(array).await? else { return Ok(()) };
        let note = job.retry_note();
        let again = doc! { "history.note": &note };
        let mut plan = self.plan_array_rerun(&array, again, rerun.downstream).await?;
        plan.waiters.retain(|waiter| rerun.queues.contains(&waiter.queue));
        let all = plan.waiters.len();
        self.without_noted(&mut plan, &note).await?;
        let mut reset = all - plan.waiters.len();
        for waiter in &plan.waiters {
            let retried = self.reset_waiter(waiter, &note).await?;
            reset += usize::from(matches!(retried, Retried::Queued | Retried::Blocked));
        }
        // The task after all elements has the array open for a while when it is reset: as long as this job runs is enough.
        self.hold_array(array.id, job.id).await?;
        let error =
            |id: &TaskId| doc! { "id": id, "error": "it runs, or is about to: it does not wait again" };
        let most = usize::try_from(ERRORS).unwrap_or(0);
        let mut errors: Vec<Document> = plan.busy.iter().take(most).map(error).collect();
        if plan.too_many {
            errors.push(
                doc! { "id": array.id, "error": "too many tasks come after it: none of them waits again" },
            );
        }
        let ours = doc! { "_id": job.id, "instance": &job.instance };
        let told = doc! { "$slice": [{ "$concatArrays": ["$errors", { "$literal": errors }] }, ERRORS] };
        let set = doc! { "downstream": count(reset), "errors": told };
        self.bulk().update_one(ours, vec![doc! { "$set": set }]).await?;
        Ok(())
    }
}
