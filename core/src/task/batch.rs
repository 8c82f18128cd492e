//! Many runs at once: what a DEN writes for its runners, in one command.

use disbatch_operation::operation;
use std::collections::HashMap;
use std::time::Duration;

use bson::{Document, doc};
use futures::future::join;
use mongodb::options::{ReadConcern, ReadPreference};

use super::external::DETACHED;
use super::run::INTERRUPT;
use super::statements::Statement;
use super::{Finish, Finished, Interim, Renewed, Run, Start, Take};
use crate::model::{Status, Task, TaskId};
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect};

/// For so long the server may ask a majority whether it is the primary.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(4);

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "most writes are those of the largest kind")]
pub enum RunWrite {
    /// Start a claimed task, see [`Store::start_task`].
    Start(Start),
    /// Start a queued task in the slot of another one, see [`Take`].
    Take(Take),
    /// Answer for the run as its DEN, in place of a lease: see [`super::cover`].
    Renew { run: Run, lease: Duration },
    /// End a task, see [`Store::finish_task`].
    Finish { run: Run, finish: Finish },
    /// Keep something of a run in its task, see [`Store::keep_interim`].
    Interim { run: Run, interim: Interim },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The task runs, and the runner of this start has it.
    Started,
    /// The task is not claimed for this start any more. Nothing has changed.
    NotClaimed,
    /// Another task has the slot. Nothing has changed.
    SlotTaken,
    Renewed(Renewed),
    Finished(Finished),
    /// It is recorded, or the run has ended, or something newer was recorded before.
    Done,
}

impl RunWrite {
    pub fn task(&self) -> TaskId {
        match self {
            Self::Start(start) => start.task,
            Self::Take(take) => take.task,
            Self::Renew { run, .. } | Self::Finish { run, .. } | Self::Interim { run, .. } => run.task,
        }
    }

    pub const fn is_renewal(&self) -> bool {
        matches!(self, Self::Renew { .. })
    }

    fn statement(&self, store: &Store) -> Statement {
        match self {
            Self::Start(start) => start.statement(),
            Self::Take(take) => take.statement(),
            Self::Renew { run, lease } => run.cover(*lease),
            Self::Finish { run, finish } => finish.statement(run, store.now()),
            Self::Interim { run, interim } => interim.statement(run, store.now()),
        }
    }

    /// What it is if its statement has found its task. `None`: the task is to be read.
    const fn matched(&self) -> Option<Written> {
        match self {
            Self::Start(_) | Self::Take(_) => Some(Written::Started),
            Self::Renew { .. } => None,
            Self::Finish { .. } => Some(Written::Finished(Finished::Stored)),
            Self::Interim { .. } => Some(Written::Done),
        }
    }
}

impl Store {
    /// Makes all these writes with one update, or as few as they fit into, and tells for each what became of it.
    ///
    /// Each is the same conditional update that the operation on one task makes, and is recognised in the same
    /// way. So all of them may be repeated with the same values when there was no answer.
    ///
    /// # Errors
    /// The database cannot be reached, or has not confirmed the writes: any of them may have been made. Repeat
    /// all of them. What is wrong with one write alone (a document would be too large, for instance) is told in
    /// its place.
    #[operation(writes = writes.len())]
    pub async fn write_runs(
        &self,
        writes: &[RunWrite],
    ) -> Result<Vec<Result<Written, StoreError>>, StoreError> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let statements: Vec<Statement> = writes.iter().map(|write| write.statement(self)).collect();
        let mut recorded = Vec::new();
        for write in writes {
            if let RunWrite::Finish { run, finish } = write {
                recorded.extend(finish.recorded_of(run));
            }
        }
        let (report, ()) = join(
            self.update_tasks(&statements, self.database().write_concern()),
            self.keep_recordings(recorded),
        )
        .await;
        let report = report?;
        if report.complete
            && let Some(written) = writes.iter().map(RunWrite::matched).collect::<Option<Vec<_>>>()
        {
            writes.iter().for_each(|write| self.note_write(write));
            return Ok(written.into_iter().map(Ok).collect());
        }
        let mut failures: HashMap<usize, StoreError> = report.failures.into_iter().collect();
        let tasks = self.read_back(writes).await?;
        let mut written = Vec::with_capacity(writes.len());
        for (number, write) in writes.iter().enumerate() {
            written.push(match failures.remove(&number) {
                Some(error) => Box::pin(self.write_unfit(write, error)).await,
                None => self.recognise(write, tasks.get(&write.task())).await,
            });
        }
        Ok(written)
    }

    /// What becomes of a write that the server refuses because of what its task is like: the task does not go on, or not with that.
    async fn write_unfit(&self, write: &RunWrite, error: StoreError) -> Result<Written, StoreError> {
        if !error.is_about_one() {
            return Err(error);
        }
        match write {
            // What else there is to say of such a task than that its slot is taken is said when it is claimed.
            RunWrite::Take(take) => {
                tracing::debug!(task = %take.task, %error, "a task was not handed a slot");
                Ok(if error.is_duplicate_key() { Written::SlotTaken } else { Written::NotClaimed })
            }
            RunWrite::Start(start) => {
                self.refuse_start(start, &start.statement().like, error).await?;
                Ok(Written::NotClaimed)
            }
            RunWrite::Finish { run, finish } => {
                Ok(Written::Finished(self.finish_unfit(run, finish, error).await?))
            }
            RunWrite::Renew { run, .. } => {
                self.end_unfit(run.task, &run.like(), Status::Terminated, error).await?;
                Ok(Written::Renewed(Renewed::Lost))
            }
            RunWrite::Interim { run, .. } => {
                tracing::warn!(task = %run.task, %error, "what a plugin says cannot be kept in its task");
                Ok(Written::Done)
            }
        }
    }

    fn note_write(&self, write: &RunWrite) {
        match write {
            RunWrite::Start(start) => {
                if let Some(waiting) = &start.waiting {
                    self.note_start(waiting, start.at);
                }
            }
            RunWrite::Take(take) => {
                self.moved(take.queue, Some(Status::Queued), Some(Status::Running), 1);
                if let Some(waiting) = &take.waiting {
                    self.note_start(waiting, take.at);
                }
            }
            RunWrite::Finish { run, finish } => self.note_finish(run, finish),
            RunWrite::Renew { .. } | RunWrite::Interim { .. } => {}
        }
    }

    /// The tasks as they are now, without what may be large and tells nothing. What a DEN is to answer for is read as only a primary can: it
    /// has a majority confirm that it is one.
    async fn read_back(&self, writes: &[RunWrite]) -> Result<HashMap<TaskId, Task>, StoreError> {
        let find = |concern: Option<ReadConcern>| self.find_back(writes, concern);
        let found = match writes.iter().any(RunWrite::is_renewal) {
            false => find(None).await?,
            true => match find(Some(ReadConcern::linearizable())).await {
                // It stands alone, so that there is no other primary.
                Err(error) if error.is_no_replica_set() => find(None).await?,
                Err(error) if error.is_out_of_time() || error.is_refusal() => {
                    return Err(StoreError::unconfirmed(error));
                }
                found => found?,
            },
        };
        let tasks = found.into_iter().filter_map(|document| typed::<Task>(TASKS.name, document).ok());
        Ok(tasks.map(|task| (task.id, task)).collect())
    }

    async fn find_back(
        &self,
        writes: &[RunWrite],
        concern: Option<ReadConcern>,
    ) -> Result<Vec<Document>, StoreError> {
        let ids: Vec<_> = writes.iter().map(|write| write.task().0).collect();
        let fields = if writes.iter().all(RunWrite::is_renewal) {
            doc! {
                "queue": 1, "status": 1, "node": 1, "attempt": 1, "instance": 1, DETACHED: 1, "lease_until": 1,
                "cancel": 1, INTERRUPT: 1,
            }
        } else {
            doc! { "params": 0, "parameters": 0, "history": 0, "result": 0 }
        };
        // All in one answer: each asks a majority. A full one does not say that it is the last.
        let at_once = u32::try_from(ids.len() + 1).unwrap_or(u32::MAX);
        let tasks = self.tasks();
        let mut found = tasks.find(doc! { "_id": { "$in": ids } }).projection(fields).batch_size(at_once);
        if let Some(concern) = concern {
            // A server that is no primary any more waits for ever.
            found = found.read_concern(concern).max_time(CONFIRMED_WITHIN);
            found = found.selection_criteria(ReadPreference::Primary.into());
        }
        collect(found).await
    }

    async fn recognise(&self, write: &RunWrite, task: Option<&Task>) -> Result<Written, StoreError> {
        Ok(match write {
            RunWrite::Start(start) if task.is_some_and(|task| start.is_of(task)) => {
                self.note_write(write);
                Written::Started
            }
            RunWrite::Take(take) if task.is_some_and(|task| take.is_of(task)) => {
                self.note_write(write);
                Written::Started
            }
            RunWrite::Start(_) | RunWrite::Take(_) => Written::NotClaimed,
            RunWrite::Renew { run, lease } => {
                Written::Renewed(self.recognise_cover(run, *lease, task).await?)
            }
            RunWrite::Finish { run, finish } if task.is_some_and(|task| finish.is_held_by(task, run)) => {
                // By this update, or by an earlier one that had no answer and so was not counted.
                self.note_write(write);
                Written::Finished(Finished::Stored)
            }
            RunWrite::Finish { run, finish } => {
                Written::Finished(self.recognise_finish(run, finish, task).await?)
            }
            RunWrite::Interim { .. } => Written::Done,
        })
    }
}
