//! Orphan: a task whose runner never came to start it, or died while it ran, ends as -6 or is tried again.

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;

use super::archive::{last_noted, server_time_before};
use super::aside::Unfit;
use super::commit::{Commit, note_of as commit_note};
use super::external::{DETACHED, attached, unheard};
use super::finish::deferred;
use super::history::files_in;
use super::steer::unasked;
use super::steps::closed;
use super::transition::{Transition, is_past};
use super::{Finish, Run};
use crate::model::{NodeName, Queue, QueueId, Rules, STEPS, Selector, Status, Task, TaskId, Trial};
use crate::store::collections::TASKS;
use crate::store::error::read;
use crate::store::{Store, StoreError, millis, with};

/// How long a task may stay claimed without being started where its claim has no lease (Disbatch 4 design,
/// Orphaned Tasks).
pub const CLAIM_EXPIRES_AFTER: Duration = Duration::from_secs(5 * 60);

const AT_ONCE: i64 = 1_000;

/// A write that a runner had sent when it died takes effect within this time.
const LAST_WRITE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    ProcessGone,
    /// Its lease has run out, and its plugin has been killed for that.
    LeaseExpired,
    /// It has no lease, and the operator says that none runs so long.
    TooOld(DateTime),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buried {
    Orphaned,
    /// It is -7 and will be tried again.
    Again,
    /// Its plugin had committed its end, with this status: see [`super::commit`].
    Committed(Status),
    /// It is not known yet what its plugin has committed. Nothing has changed.
    Open,
    /// A web service has called back for it, and so works on it: it runs on without a runner.
    LeftToService,
    /// It was not running any more, or its lease has been renewed. Nothing has changed.
    NotRunning,
}

impl Buried {
    /// The status that the task has. `None`: its run is not over by this.
    const fn status(self) -> Option<Status> {
        match self {
            Self::Orphaned => Some(Status::Orphaned),
            Self::Again => Some(Status::Deferred),
            Self::Committed(status) => Some(status),
            Self::LeftToService | Self::Open | Self::NotRunning => None,
        }
    }
}

impl Store {
    /// Orphans the tasks of `node` that were claimed without a lease more than five minutes ago and never
    /// started, by its clock and, where their history tells, by the server's. Returns how many. Old documents hold the time as epoch
    /// seconds; those count too.
    #[operation]
    pub async fn orphan_stale_claims(&self, node: &NodeName) -> Result<u64, StoreError> {
        let update =
            Transition::to(Status::Orphaned, self.now()).end_of_run().failed("claimed and never started");
        self.move_until(None, stale_claims(node, self.now()), &update.pipeline(), Status::Orphaned).await
    }

    /// Ends the run of a task whose runner is known to be dead: as -6, or as -7 where its queue wants it
    /// tried again, its attempts are not used up, and nobody has asked for its end. What it had printed is kept.
    ///
    /// The update repeats the evidence: a lease that has been renewed meanwhile keeps the task with its
    /// runner. What a web service works on goes on.
    #[operation(task = %task.id)]
    pub async fn bury(&self, task: &Task, evidence: Evidence, why: &str) -> Result<Buried, StoreError> {
        let queue = self.readable_queue_of(task).await?;
        let rules = Rules::of(task, queue.as_ref());
        let pause = match evidence {
            Evidence::ProcessGone | Evidence::LeaseExpired => {
                rules.after_death(task.failures(), crate::clock::chance())
            }
            Evidence::TooOld(_) => None, // Whether it still runs somewhere is not known: never twice.
        };
        let filter = still_so(task, evidence);
        if self.leave_to_service(task, filter.clone()).await? {
            return Ok(Buried::LeftToService);
        }
        let filter = with(filter, unheard(task));
        let found = self.tasks().find_one(filter.clone()).projection(doc! { "uploads": 1 }).await?;
        let Some(found) = found else { return Ok(Buried::NotRunning) };
        let run = Run::of(task);
        // Should its lease be renewed meanwhile, it goes on, and its plugin cannot commit any more.
        let committed = match self.settle_commit_of(&run).await? {
            Commit::Open => return Ok(Buried::Open),
            Commit::Done(status) => Some(status),
            Commit::Never => None,
        };
        // Before the update, so that a task that has ended has its output.
        let sealed = StoreError::unless_forbidden(self.seal_live(task.id, run.attempt).await)?;
        let (stdout, stderr) = sealed.unwrap_or((Bson::Null, Bson::Null));
        let sealed = [stdout.clone(), stderr.clone()];
        let for_good = |why: String| match committed {
            Some(status) => (status, commit_note(status, &why)),
            None => (Status::Orphaned, poisonous(&rules, task, &why)),
        };
        let mut buried = match pause.filter(|_| committed.is_none() && !task.is_to_be_cancelled()) {
            None => self.bury_for_good(&filter, [stdout, stderr], for_good(why.to_owned())).await,
            Some(pause) => self.bury_for_now(&filter, &run, [stdout, stderr], (pause, why)).await,
        };
        if let Err(error) = &buried
            && (error.is_forbidden() || error.is_about_one())
        {
            // Better without the output, or without another attempt, than running for ever.
            let for_good = for_good(format!("{why}; {error}"));
            self.discard_output(&sealed).await?;
            buried = self.bury_for_good(&filter, [Bson::Null, Bson::Null], for_good).await;
            if let Err(error) = buried.as_ref()
                && error.is_about_one()
            {
                let error = StoreError::unfit(&error.to_string());
                let buried = self.bury_unfit(task, &filter, (&found, error)).await?;
                self.measure_burial(task.queue, evidence, buried);
                return Ok(buried);
            }
        }
        let buried = buried.inspect_err(|_| self.doubt_counters())?;
        self.measure_burial(task.queue, evidence, buried);
        self.note_trial_of_buried(task, queue.as_ref(), buried);
        if let Some(status) = buried.status() {
            self.moved(task.queue, Some(Status::Running), Some(status), 1);
            // Nobody sees what it has left, with or without this: see `files/commit.rs`.
            if let Err(error) = self.settle_filesets(task.id).await {
                tracing::warn!(%error, "cannot take back yet what a dead run has left");
            }
            self.remove_live(task.id, Some(run.attempt)).await?;
            // What it was storing when it died. Should it only have been stopped, it removes these itself.
            self.discard_uploads(&run, &found).await?;
        }
        self.discard_sealed(&run, &sealed, buried).await?;
        Ok(buried)
    }

    /// `None`: it is gone, or says nothing that anybody could understand.
    async fn readable_queue_of(&self, task: &Task) -> Result<Option<Queue>, StoreError> {
        match self.find_queue(&Selector::Id(task.queue.0)).await {
            Err(error) if error.is_about_one() => Ok(None),
            queue => queue,
        }
    }

    fn note_trial_of_buried(&self, task: &Task, queue: Option<&Queue>, what: Buried) {
        let Some(status) = what.status() else { return };
        let status = if what == Buried::Again { Status::Orphaned } else { status };
        self.note_trial(task.queue, queue.and_then(|queue| Trial::of_started(queue, task)), status);
    }

    async fn bury_unfit(
        &self,
        task: &Task,
        filter: &Document,
        (found, error): (&Document, StoreError),
    ) -> Result<Buried, StoreError> {
        let run = Run::of(task);
        Ok(match self.end_unfit(task.id, filter, Status::Orphaned, error).await? {
            Unfit::Ended => {
                self.remove_live(task.id, Some(run.attempt)).await?;
                self.discard_uploads(&run, found).await?;
                Buried::Orphaned
            }
            Unfit::Changed | Unfit::Aside => Buried::NotRunning,
        })
    }

    /// Removes files that a run had announced in its task, save those that its kept outcome refers to.
    pub(super) async fn discard_uploads(&self, run: &Run, task: &Document) -> Result<(), StoreError> {
        let Some(files) = task.get_array("uploads").ok().filter(|files| !files.is_empty()) else {
            return Ok(());
        };
        let kept = StoreError::unless_forbidden(self.find_attempt(run.task, run.attempt).await)?;
        let Some(kept) = kept.map(Option::unwrap_or_default) else { return Ok(()) };
        let stray = strays(files, &kept);
        self.discard_output(&stray).await?;
        // The server may still be at work on chunks that the runner had sent before it died.
        let store = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LAST_WRITE).await;
            if let Err(error) = store.discard_output(&stray).await {
                tracing::warn!(%error, "cannot remove once more what a dead runner was storing");
            }
        });
        Ok(())
    }

    /// Removes the files that a burial has made, unless the task or the kept outcome of its attempt refers to them: of several burials at
    /// once, one may have kept the outcome and another one moved the task.
    async fn discard_sealed(&self, run: &Run, sealed: &[Bson], what: Buried) -> Result<(), StoreError> {
        let is_in_task = what.status().is_some() && what != Buried::Again;
        if is_in_task || sealed.iter().all(|value| value.as_object_id().is_none()) {
            return Ok(());
        }
        let kept = StoreError::unless_forbidden(self.find_attempt(run.task, run.attempt).await)?.flatten();
        self.discard_output(&strays(sealed, &kept.unwrap_or_default())).await
    }

    async fn bury_for_good(
        &self,
        filter: &Document,
        [stdout, stderr]: [Bson; 2],
        (status, why): (Status, String),
    ) -> Result<Buried, StoreError> {
        let update = Transition::to(status, self.now()).compute(STEPS, closed(status)).end_of_run();
        let mut update = if status == Status::Succeeded { update.note(&why) } else { update.failed(&why) };
        if stdout != Bson::Null || stderr != Bson::Null {
            update = update.set("stdout", stdout).set("stderr", stderr).set("complete", false);
        }
        let changed = self.tasks().update_one(filter.clone(), update.pipeline()).await?.matched_count == 1;
        Ok(match status {
            _ if !changed => Buried::NotRunning,
            Status::Orphaned => Buried::Orphaned,
            committed => Buried::Committed(committed),
        })
    }

    async fn bury_for_now(
        &self,
        filter: &Document,
        run: &Run,
        [stdout, stderr]: [Bson; 2],
        (pause, why): (Duration, &str),
    ) -> Result<Buried, StoreError> {
        let finish = Finish {
            status: Status::Orphaned,
            stdout,
            stderr,
            complete: false,
            result: None,
            exit: None,
            note: Some(why.to_owned()),
            last_line: None,
            pause: None,
            recorded: None,
            trial: None, // That is noted for all burials.
        };
        let not_kept = self.keep_attempt(run, &finish).await?;
        let update = deferred(self, pause, &finish).pipeline();
        let still = with(filter.clone(), unasked());
        let moved = self.tasks().update_one(still, update).await.map_err(StoreError::from);
        if moved.as_ref().is_ok_and(|moved| moved.matched_count == 1) {
            if let Some(outcome) = not_kept {
                self.keep_instead(run, outcome).await;
            }
            return Ok(Buried::Again);
        }
        // After another error nobody knows whether it has moved, and what was kept stays.
        let is_refused = |error: &StoreError| error.is_forbidden() || error.is_about_one();
        if not_kept.is_none() && moved.as_ref().err().is_none_or(is_refused) {
            self.forget_attempt((run.task, run.attempt), Some(run)).await?;
        }
        moved?;
        // Somebody may have asked for its end since it was read.
        let asked = with(filter.clone(), doc! { "cancel": { "$type": "object" } });
        let for_good = (Status::Orphaned, why.to_owned());
        self.bury_for_good(&asked, [finish.stdout, finish.stderr], for_good).await
    }

    /// Whether the runner of a run has another task by a lease that is not over: that of a plugin that takes batches.
    #[operation(task = %task.id)]
    pub async fn has_run_beside(&self, task: &Task) -> Result<bool, StoreError> {
        let (Some(pid), Some(instance)) = (task.pid(), task.instance()) else { return Ok(false) };
        let beside = doc! {
            "_id": { "$ne": task.id }, "node": task.node.clone(), "status": Status::Running,
            "instance": instance, "pid": pid, "$expr": { "$gt": ["$lease_until", "$$NOW"] },
        };
        let found = self.tasks().find_one(beside).projection(doc! { "_id": 1 }).await?;
        Ok(found.is_some())
    }

    /// Running tasks whose lease has run out, by the server's clock.
    #[operation]
    pub async fn expired_runs(&self) -> Result<Vec<Task>, StoreError> {
        let filter = doc! {
            "status": Status::Running,
            "lease_until": { "$type": "date" },
            "$expr": is_past("lease_until"),
        };
        self.runs(filter).await
    }

    #[operation(queue = %queue)]
    pub async fn unleased_runs(&self, queue: QueueId, limit: DateTime) -> Result<Vec<Task>, StoreError> {
        let filter = doc! {
            "queue": queue, "status": Status::Running, "lease_until": Bson::Null, "$or": older_than(limit),
        };
        self.runs(filter).await
    }

    /// Reads what looking after a run needs, and not what may be large or of any kind. A task that cannot be read nevertheless is
    /// nobody's to look after: it ends.
    async fn runs(&self, filter: Document) -> Result<Vec<Task>, StoreError> {
        let found = self
            .raw_tasks()
            .find(self.without_left_alone(filter.clone()))
            .projection(doc! {
                "params": 0, "parameters": 0, "history": 0, "stdout": 0, "stderr": 0, "result": 0, "progress": 0,
            })
            .limit(AT_ONCE)
            .await?;
        let documents: Vec<RawDocumentBuf> = found.try_collect().await?;
        let (mut runs, mut odd) = (Vec::new(), Vec::new());
        for document in documents {
            match read::<Task>(TASKS.name, &document) {
                Ok(task) => runs.push(task),
                Err(error) => match document.get_object_id("_id") {
                    Ok(id) => {
                        self.end_unfit(TaskId(id), &filter, Status::Orphaned, error).await?;
                    }
                    Err(_) => odd
                        .extend(document.get("_id").ok().flatten().map(Bson::try_from).and_then(Result::ok)),
                },
            }
        }
        if !odd.is_empty() {
            // Nothing else can be done with them.
            tracing::error!(ids = ?odd, "runs of tasks whose _id is no ObjectId: orphaned");
            let update =
                Transition::to(Status::Orphaned, self.now()).end_of_run().failed("its _id is no ObjectId");
            let these = doc! { "$and": [{ "_id": { "$in": odd } }, filter] };
            self.move_until(None, these, &update.pipeline(), Status::Orphaned).await?;
        }
        Ok(runs)
    }
}

/// How long a run without a lease may take in `queue`, if the operator has set a limit.
pub fn unleased_limit(queue: &Queue) -> Option<Duration> {
    let seconds = queue.rest.get("unleased_limit").and_then(crate::model::number)?;
    Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero())
}

/// `now`: the time of the host that has written `mtime`. Its clock may have been put forward since, but then the server's was not.
pub(super) fn stale_claims(node: &NodeName, now: DateTime) -> Document {
    let limit = long_ago(now, CLAIM_EXPIRES_AFTER);
    doc! {
        "node": node, "status": Status::Claimed, "lease_until": Bson::Null, "$or": older_than(limit),
        "$expr": { "$lte": [last_noted(), server_time_before("$$NOW", CLAIM_EXPIRES_AFTER)] },
    }
}

impl Run {
    pub fn of(task: &Task) -> Self {
        let node = task.node.as_ref().and_then(Bson::as_str).unwrap_or_default();
        Self {
            task: task.id,
            queue: task.queue,
            node: NodeName::new(node),
            attempt: task.attempt().unwrap_or(0),
            instance: task.instance().map(str::to_owned),
        }
    }
}

/// Matches the task while it is still as it was found, and the evidence still holds.
fn still_so(task: &Task, evidence: Evidence) -> Document {
    let filter = doc! {
        "_id": task.id, "status": Status::Running, "node": task.node.clone(),
        // As they are stored, whatever that is.
        "attempt": task.rest.get("attempt").cloned(), "instance": task.rest.get("instance").cloned(),
        DETACHED: attached(),
    };
    let evident = match evidence {
        Evidence::ProcessGone => doc! {},
        Evidence::LeaseExpired => {
            doc! { "lease_until": { "$type": "date" }, "$expr": is_past("lease_until") }
        }
        Evidence::TooOld(limit) => doc! { "lease_until": Bson::Null, "$or": older_than(limit) },
    };
    with(filter, evident)
}

fn poisonous(rules: &Rules, task: &Task, why: &str) -> String {
    let failures = task.failures();
    if rules.on_orphan == crate::model::OnOrphan::Fail || failures == 0 || task.is_to_be_cancelled() {
        return why.to_owned();
    }
    format!("{why}; given up after {} failed attempts", failures + 1)
}

pub fn long_ago(now: DateTime, duration: Duration) -> DateTime {
    DateTime::from_millis(now.timestamp_millis().saturating_sub(millis(duration)))
}

fn strays(files: &[Bson], kept: &Document) -> Vec<Bson> {
    let named = files_in(kept);
    files.iter().filter(|file| !named.contains(file)).cloned().collect()
}

fn older_than(limit: DateTime) -> Vec<Document> {
    vec![doc! { "mtime": { "$lt": limit } }, doc! { "mtime": { "$lt": limit.timestamp_millis() / 1000 } }]
}
