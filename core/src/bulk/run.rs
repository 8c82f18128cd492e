//! The work on a job: batch after batch, until the last task, a cancel, or someone else has it.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Action, BulkJob, LEASE, State};
use crate::audit::Verb;
use crate::model::{ArrayId, QueueId, TaskId};
use crate::store::{Store, StoreError, integer};
use crate::task::rerun::Downstream;
use crate::task::transition::server_time_in;
use crate::task::{CancelRequest, Cancelled, Retried};

/// So many tasks between two looks at the job.
const BATCH: usize = 200;

/// So many tasks at once.
const AT_ONCE: usize = 8;

/// So many errors are kept.
const ERRORS: i32 = 10;

/// How often it is looked for jobs whose worker has died.
const LOOK: Duration = Duration::from_secs(3);

/// How long to wait when the database is away.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the end of a process waits for the batches that its jobs are at.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Works on the jobs of one process.
#[derive(Debug, Clone)]
pub struct Worker {
    store: Store,
    instance: Arc<str>,
    stop: CancellationToken,
    wake: Arc<Notify>,
    jobs: TaskTracker,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct BatchOutcome {
    done: i64,
    skipped: i64,
    /// As they are stored.
    errors: Vec<Document>,
}

enum Acted {
    Done,
    Skipped,
    Failed(String),
}

/// Looks for jobs whose worker has died, and finishes them, until told to stop.
pub async fn follow(worker: Worker) {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = worker.stop.cancelled() => return,
            () = worker.wake.notified() => {}
            _ = looks.tick() => {}
        }
        match worker.store.take_over_bulk(&worker.instance).await {
            Ok(Some(job)) => {
                tracing::info!(job = %job.id, action = job.action.as_str(), "a bulk job is taken over");
                worker.wake.notify_one(); // There may be more.
                worker.start(job);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot look for bulk jobs"),
        }
    }
}

impl Worker {
    /// The worker of this process. Its jobs run on the runtime that this is called on.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            instance: ObjectId::new().to_hex().into(),
            stop: CancellationToken::new(),
            wake: Arc::default(),
            jobs: TaskTracker::new(),
            runtime: Handle::current(),
        }
    }

    /// Works on a job that this worker has, in the background.
    pub fn start(&self, job: BulkJob) {
        self.jobs.spawn_on(self.clone().work(job), &self.runtime);
    }

    /// Stops, and leaves the jobs to others.
    pub async fn end(&self) {
        self.stop.cancel();
        self.jobs.close();
        if tokio::time::timeout(LAST_MOMENT, self.jobs.wait()).await.is_err() {
            tracing::warn!("a bulk job is left in the middle of a batch; another server takes it over");
        }
    }

    /// Its name in jobs.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Until the job is over or no longer this worker's.
    async fn work(self, mut job: BulkJob) {
        loop {
            let id = job.id;
            let worked = tokio::select! {
                worked = self.batches(&mut job) => worked,
                never = self.renew(id) => match never {},
            };
            let ended = match worked {
                Ok(ended) => ended,
                Err(error) if error.is_transient() => {
                    tracing::warn!(job = %job.id, %error, "a bulk job waits for the database");
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => continue,
                        () = self.stop.cancelled() => return,
                    }
                }
                Err(error) => {
                    tracing::error!(job = %job.id, %error, "a bulk job failed");
                    // If even that cannot be written, whoever takes the job over meets the same.
                    self.conclude(&job, State::Failed, Some(&error.to_string())).await.unwrap_or_default()
                }
            };
            if let Some(state) = ended {
                tracing::info!(
                    job = %job.id, action = job.action.as_str(), state = state.as_str(), "a bulk job ended"
                );
            }
            return;
        }
    }

    /// Keeps the job this worker's, however long a single step takes.
    async fn renew(&self, id: ObjectId) -> std::convert::Infallible {
        let ours = doc! { "_id": id, "instance": &*self.instance, "state": State::Running.as_str() };
        let update = vec![doc! { "$set": { "lease_until": server_time_in(LEASE) } }];
        loop {
            tokio::time::sleep(LEASE / 3).await;
            if let Err(error) = self.store.bulk().update_one(ours.clone(), update.clone()).await {
                tracing::debug!(job = %id, %error, "cannot renew the lease of a bulk job");
            }
        }
    }

    /// All batches that are left. Returns how the job ended; `None` if it is no longer this worker's.
    async fn batches(&self, job: &mut BulkJob) -> Result<Option<State>, StoreError> {
        // An answer that was lost may have told more than this worker knows.
        let current = self.store.find_bulk(job.id).await?;
        let Some(current) = current.filter(|job| *job.instance == *self.instance) else { return Ok(None) };
        *job = current;
        if job.state != State::Running {
            return Ok(Some(job.state));
        }
        let mut batches = self.store.bulk_ids(job).await?.try_chunks(BATCH);
        let mut next =
            async || batches.try_next().await.map(Option::unwrap_or_default).map_err(|error| error.1);
        let mut batch: Vec<TaskId> = job.pending.iter().copied().map(TaskId).collect();
        let mut resumed = !batch.is_empty();
        if batch.is_empty() {
            batch = next().await?;
            let Some(current) = self.report(job, None, &batch).await? else { return Ok(None) };
            *job = current;
        }
        while !batch.is_empty() && job.state == State::Running {
            let outcome = self.act(job, &batch, resumed).await?;
            resumed = false;
            let following = next().await?;
            let seen = Some((&batch, &outcome));
            let Some(current) = self.report(job, seen, &following).await? else { return Ok(None) };
            *job = current;
            batch = following;
            if self.stop.is_cancelled() {
                self.release(job).await?;
                return Ok(None);
            }
        }
        match job.state {
            State::Running => {
                if let Some(rerun) = &job.rerun {
                    self.store.reset_downstream(job, rerun).await?;
                }
                self.conclude(job, State::Done, None).await
            }
            ended => Ok(Some(ended)),
        }
    }

    /// Acts on a batch. A task that is in the archive too comes twice. `resumed`: whoever was at it before may have done some of it.
    async fn act(&self, job: &BulkJob, batch: &[TaskId], resumed: bool) -> Result<BatchOutcome, StoreError> {
        let mut batch = batch.to_vec();
        batch.dedup();
        let all = integer(batch.len());
        let still = self.store.bulk_still(job, &batch).await?;
        let (tasks, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(|id| still.contains(&id.0));
        let before = if resumed { self.store.bulk_changed(job, &others).await? } else { 0 };
        let of = |changed: u64| BatchOutcome { done: integer(changed), ..BatchOutcome::default() };
        let mut outcome = match job.action {
            Action::Archive => of(self.store.archive_tasks(&tasks).await?.moved),
            Action::Delete => of(self.store.delete_tasks(&tasks).await?),
            Action::Cancel | Action::Retry => self.one_by_one(job, &tasks).await?,
        };
        outcome.done += before;
        outcome.skipped = (all - outcome.done).max(0);
        Ok(outcome)
    }

    /// The rest is skipped, which is not counted here.
    async fn one_by_one(&self, job: &BulkJob, tasks: &[TaskId]) -> Result<BatchOutcome, StoreError> {
        let one = |id: TaskId| async move {
            let acted = match job.action {
                Action::Cancel => self.cancel(job, id).await,
                _ => self.retry(job, id).await, // Nothing else comes here.
            };
            match acted {
                Err(error) if error.is_transient() => Err(error),
                Err(error) => Ok((id, Acted::Failed(error.to_string()))),
                Ok(acted) => Ok((id, acted)),
            }
        };
        let mut acted = futures::stream::iter(tasks.iter().copied()).map(one).buffer_unordered(AT_ONCE);
        let mut outcome = BatchOutcome::default();
        while let Some((id, acted)) = acted.try_next().await? {
            match acted {
                Acted::Done => outcome.done += 1,
                Acted::Skipped => {}
                Acted::Failed(error) => outcome.errors.push(doc! { "id": id, "error": error }),
            }
        }
        Ok(outcome)
    }

    async fn cancel(&self, job: &BulkJob, id: TaskId) -> Result<Acted, StoreError> {
        let request = CancelRequest { by: job.by.clone(), reason: job.reason.clone() };
        Ok(match self.store.cancel_task(id, &request).await? {
            Cancelled::Cancelled | Cancelled::Requested | Cancelled::Terminated => Acted::Done,
            Cancelled::Ended(_) | Cancelled::NoSuchTask => Acted::Skipped,
        })
    }

    async fn retry(&self, job: &BulkJob, id: TaskId) -> Result<Acted, StoreError> {
        let (note, params) = (job.retry_note(), job.rerun.as_ref().and_then(|rerun| rerun.params.clone()));
        let retried = match params {
            Some((key, params)) => self.store.retry_element(id, (&key, params), &note).await?,
            None => self.store.retry_task(id, &note).await?,
        };
        Ok(match retried {
            Retried::Queued | Retried::Blocked => Acted::Done,
            Retried::NotUnique(_) => Acted::Failed(Retried::NOT_UNIQUE.to_owned()),
            Retried::Refused => Acted::Failed(Retried::WAS_REFUSED.to_owned()),
            Retried::NotEnded(_) | Retried::NoSuchTask => Acted::Skipped,
        })
    }

    /// Also renews the lease, and brings back how the job is now. `None`: it is someone else's.
    async fn report(
        &self,
        job: &BulkJob,
        seen: Option<(&Vec<TaskId>, &BatchOutcome)>,
        next: &[TaskId],
    ) -> Result<Option<BulkJob>, StoreError> {
        let ours = doc! { "_id": job.id, "instance": &*self.instance, "position": job.position };
        let pending: Vec<ObjectId> = next.iter().map(|id| id.0).collect();
        let mut set = doc! { "lease_until": server_time_in(LEASE), "pending": pending };
        if let Some((batch, outcome)) = seen {
            let errors = &outcome.errors;
            set.extend(doc! {
                "done": { "$add": ["$done", outcome.done] },
                "skipped": { "$add": ["$skipped", outcome.skipped] },
                "errors": { "$slice": [{ "$concatArrays": ["$errors", { "$literal": errors }] }, ERRORS] },
                "position": batch.last().map(|id| id.0), "updated": "$$NOW",
            });
        }
        self.store.change_bulk(ours, set).await
    }

    /// Ends the job if it is still this worker's and running.
    async fn conclude(
        &self,
        job: &BulkJob,
        state: State,
        failure: Option<&str>,
    ) -> Result<Option<State>, StoreError> {
        let ours = doc! { "_id": job.id, "instance": &*self.instance, "state": State::Running.as_str() };
        let failure = failure.map_or(Bson::Null, Bson::from);
        let set = doc! {
            "state": state.as_str(), "updated": "$$NOW", "failure": { "$literal": failure },
        };
        let Some(job) = self.store.change_bulk(ours, set).await? else { return Ok(None) };
        self.store.note_audit(&job.audit_entry(Verb::BulkEnded(job.action))).await;
        Ok(Some(state))
    }

    /// Lets another take the job over at once.
    async fn release(&self, job: &BulkJob) -> Result<(), StoreError> {
        let ours = doc! { "_id": job.id, "instance": &*self.instance };
        let update = vec![doc! { "$set": { "lease_until": "$$NOW" } }];
        self.store.bulk().update_one(ours, update).await?;
        Ok(())
    }
}

/// What a job does besides that tries elements of an array again: when all of them have been queued, tasks that come after them wait
/// for them again, see [`crate::task::rerun`].
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
        let Some(array) = found else { return Ok(None) };
        self.find_retrying(&array).await
    }

    /// The same of an array as stored.
    pub(crate) async fn find_retrying(&self, array: &Document) -> Result<Option<BulkJob>, StoreError> {
        let Ok(job) = array.get_object_id("retrying") else { return Ok(None) };
        Ok(self.find_bulk(job).await?.filter(|job| job.state == State::Running))
    }

    /// Has tasks wait again that come after those which this job has queued again. Whoever takes the job over at this point leaves out
    /// what has the job's note, as it may have ended again since.
    #[operation(job = %job.id)]
    async fn reset_downstream(&self, job: &BulkJob, rerun: &Rerun) -> Result<(), StoreError> {
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
        // Whoever sees the job sees the queue of the array, and need not see others.
        let error = |(id, queue): &(TaskId, QueueId)| match *queue == array.queue {
            true => doc! { "id": id, "error": "it runs, or is about to: it does not wait again" },
            false => {
                doc! { "id": array.id, "error": "one that comes after it, in another queue, runs or is about to: it does not wait again" }
            }
        };
        let most = usize::try_from(ERRORS).unwrap_or(0);
        let busy = plan.busy.iter().filter(|(_, queue)| rerun.queues.contains(queue));
        let mut errors: Vec<Document> = busy.take(most).map(error).collect();
        if plan.too_many {
            errors.push(
                doc! { "id": array.id, "error": "too many tasks come after it: none of them waits again" },
            );
        }
        let ours = doc! { "_id": job.id, "instance": &job.instance };
        let told = doc! { "$slice": [{ "$concatArrays": ["$errors", { "$literal": errors }] }, ERRORS] };
        let set = doc! { "downstream": integer(reset), "errors": told };
        self.bulk().update_one(ours, vec![doc! { "$set": set }]).await?;
        Ok(())
    }
}
