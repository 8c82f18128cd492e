//! A run: a runner makes a claimed task its own (-1 -> 0), and writes what comes while it goes on: its lease, its progress, the reports
//! of its plugin and what that saves, and which files it takes and makes.
//!
//! What a run makes of file sets is fenced by it. The task is told of the version by an update that names the run, and only then the
//! version is sealed: a run that has lost its task makes none. A version that is sealed is seen by nobody. It is done when
//! the task has ended well by the very attempt that has made it, and gone when it has not, whoever notices that first:
//! [`Store::settle_filesets`]. A run that gives up takes back what it has made before, with [`Store::withdraw_filesets`].

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::options::ReturnDocument;
use serde::{Deserialize, Serialize};

use super::Waiting;
use super::external::{DETACHED, attached, is_detached};
use super::statements::Statement;
use super::steps::stated;
use super::transition::{Transition, count_in, server_time_in};
use crate::model::{FILES, NodeName, QueueId, STEPS, Status, Task, TaskId, whole_number};
use crate::store::collections::{REPORTS, TASKS};
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect_ids, put, with};

/// The field of a task with what its plugin saves while it runs, for the next run of its schedule, or for the next attempt.
pub const STORAGE: &str = "storage";

/// The field of a task with the number of the attempt that is to stop, as its node is to be empty. No later attempt takes it for its own, so
/// nobody has to remove it.
pub(crate) const INTERRUPT: &str = "interrupt";

#[derive(Debug, Clone)]
pub struct Start {
    pub task: TaskId,
    /// What it is before: claimed, or started for this runner, which cannot tell its DEN that it has taken it.
    pub from: Status,
    pub node: NodeName,
    /// Which claim it was started for, if the DEN that did says so: the attempt, and the start of that DEN.
    pub claim: Option<(i64, String)>,
    /// When that claim was made, as the task says. A claim is not acknowledged by a majority: after a change of the
    /// primary it may be gone, and its successor would have the same number.
    pub claimed: Option<DateTime>,
    /// The time of the start, the same in every repetition.
    pub at: DateTime,
    pub lease: Duration,
    pub pid: u32,
    /// Where and since when the task has waited, for [`crate::series`]. `None`: it is not noted, unless the task
    /// itself says so, as in [`Store::start_task`].
    pub waiting: Option<Waiting>,
}

#[derive(Debug)]
pub enum Started {
    Running(Box<Task>, Run),
    /// No such task is claimed for this node: someone else has it, or it was given back. Touch nothing.
    NotClaimed,
}

/// One run of a task by one runner. Everything that a runner writes names all of this, so that a runner whose
/// task was taken away changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub task: TaskId,
    pub queue: QueueId,
    pub node: NodeName,
    pub attempt: i64,
    /// The start of the DEN that claimed it; none if a program claimed it that does not count attempts, and
    /// whose claim the number alone could not tell from the one before.
    pub instance: Option<String>,
}

impl Run {
    /// Matches the task as long as this run has it.
    pub(super) fn filter(&self) -> Document {
        with(doc! { "_id": self.task }, self.like())
    }

    /// What a task is like that this run has. One that was given to a web service it has not any more.
    pub(super) fn like(&self) -> Document {
        doc! {
            "status": Status::Running, "node": &self.node, "attempt": self.attempt,
            "instance": self.instance.as_deref(), DETACHED: attached(),
        }
    }

    pub(super) fn is_of(&self, attempt: Option<&Bson>) -> bool {
        attempt.and_then(whole_number) == Some(self.attempt)
    }

    pub(super) fn has(&self, task: &Task) -> bool {
        task.status == Status::Running
            && task.node.as_ref() == Some(&Bson::from(&self.node))
            && self.is_of(task.rest.get("attempt"))
            && task.instance() == self.instance.as_deref()
            && !is_detached(task)
    }

    /// A transition within this run that only takes place if none of the same kind with this number or a higher one has:
    /// `number_in` keeps it. What was asked of a DEN may come after what the runner has written by itself since.
    fn saving(&self, number_in: &str, number: i64, transition: Transition) -> Statement {
        let like = with(self.like(), doc! { number_in: { "$not": { "$gte": number } } });
        Statement::of(self.task.0, like, transition.set(number_in, number))
    }
}

/// What a task has of its run while that goes on. `number`: which of the run's it is, if only a higher one may take its place.
#[derive(Debug, Clone)]
pub enum Interim {
    /// How far it is.
    Progress(Document),
    /// What its plugin has saved, in place of what it had saved before.
    Storage { storage: Bson, number: i64 },
    /// How far its steps are: the fields of each besides its name, plugin and params.
    Steps { states: Vec<Document>, number: i64 },
}

impl Interim {
    pub(super) fn statement(&self, run: &Run, now: DateTime) -> Statement {
        let within = Transition::within();
        match self {
            Self::Progress(progress) => {
                let progress = with(progress.clone(), doc! { "at": now });
                Statement::of(run.task.0, run.like(), within.set("progress", progress))
            }
            Self::Storage { storage, number } => {
                run.saving("saves.storage", *number, within.set(STORAGE, storage.clone()))
            }
            Self::Steps { states, number } => {
                run.saving("saves.steps", *number, within.compute(STEPS, stated(states)))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    Held(Wishes),
    /// Someone has taken it away: kill the plugin, store nothing.
    Lost,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    pub cancel: bool,
    /// Its node is to be empty: whoever can go on elsewhere does.
    #[serde(default)]
    pub interrupt: bool,
}

impl Wishes {
    pub(super) fn of(task: &Document, run: &Run) -> Self {
        Self { cancel: task.get_document("cancel").is_ok(), interrupt: run.is_of(task.get(INTERRUPT)) }
    }
}

impl Store {
    /// Of any number of runners for one claim, the update lets one through. May be called again with the
    /// same values when an answer was lost: a task that this call has started counts as started.
    ///
    /// A claim by a program that does not count attempts (it leaves no `instance`) is counted here.
    #[operation(task = %start.task)]
    pub async fn start_task(&self, start: &Start) -> Result<Started, StoreError> {
        let statement = start.statement();
        let like = statement.like.clone();
        let (filter, update) = statement.alone();
        let tasks = self.tasks();
        let started = tasks.find_one_and_update(filter, update);
        let started = started.return_document(ReturnDocument::After).await.map_err(StoreError::from);
        let started = match started {
            Err(error) if error.is_about_one() => {
                self.refuse_start(start, &like, error).await?;
                return Ok(Started::NotClaimed);
            }
            started => started?,
        };
        let task = match started {
            Some(document) => {
                let task = typed(TASKS.name, document)?;
                if let Some(waiting) = Waiting::of_task(&task).filter(|_| start.from == Status::Claimed) {
                    self.note_start(&waiting, start.at);
                }
                Some(task)
            }
            None => self.find_task(start.task).await?.filter(|task| start.is_of(task)),
        };
        Ok(match task {
            Some(task) => {
                // Whatever stands there: the node was compared.
                let run = Run { node: start.node.clone(), ..Run::of(&task) };
                Started::Running(Box::new(task), run)
            }
            None => Started::NotClaimed,
        })
    }

    /// A task that cannot be started because of what it is like ends.
    pub(super) async fn refuse_start(
        &self,
        start: &Start,
        like: &Document,
        error: StoreError,
    ) -> Result<(), StoreError> {
        // An answer that cannot be read comes after the start.
        let running = doc! { "status": Status::Running, "node": &start.node, "mtime": start.at, "pid": i64::from(start.pid) };
        let still = doc! { "$or": [like, running] };
        self.end_unfit(start.task, &still, Status::Terminated, error).await?;
        Ok(())
    }

    /// Prolongs a run's lease, by the server's clock, and tells what is wanted of it.
    #[operation(task = %run.task)]
    pub async fn renew_lease(&self, run: &Run, lease: Duration) -> Result<Renewed, StoreError> {
        let longer = Transition::within().compute("lease_until", server_time_in(lease));
        let renewed = self
            .tasks()
            .find_one_and_update(run.filter(), longer.pipeline())
            .projection(doc! { "cancel": 1, INTERRUPT: 1 })
            .return_document(ReturnDocument::After)
            .await?;
        Ok(renewed.map_or(Renewed::Lost, |task| Renewed::Held(Wishes::of(&task, run))))
    }

    /// Records in the task that this run is about to store a file of its output, so that it can be removed
    /// should the runner die before the task refers to it. Nothing happens if this run has ended.
    #[operation(task = %run.task, %file)]
    pub async fn announce_upload(&self, run: &Run, file: ObjectId) -> Result<(), StoreError> {
        self.tasks().update_one(run.filter(), doc! { "$addToSet": { "uploads": file } }).await?;
        Ok(())
    }

    /// The same for whoever stores output in the place of a run, if the task is like `still`. Where that cannot be noted, the file stays
    /// for ever should this process die; without it the output would be lost whatever comes.
    pub(crate) async fn note_upload(
        &self,
        task: TaskId,
        still: Document,
        file: ObjectId,
    ) -> Result<(), StoreError> {
        let note = doc! { "$addToSet": { "uploads": file } };
        match self.tasks().update_one(still, note).await.map_err(StoreError::from) {
            Err(error) if error.is_about_one() => {
                tracing::warn!(%task, %error, "it cannot be noted in a task where its output is stored");
                Ok(())
            }
            noted => noted.map(drop),
        }
    }

    #[operation]
    pub async fn insert_report(&self, report: Document) -> Result<(), StoreError> {
        self.database().collection::<Document>(REPORTS.name).insert_one(report).await?;
        Ok(())
    }

    /// Keeps something of a run in its task. Nothing happens if this run has ended, or something newer of the kind was kept for it before.
    ///
    /// # Errors
    /// The database cannot be reached, or the document would be too large
    /// ([`crate::store::WriteFailure::is_too_large`]).
    #[operation(task = %run.task)]
    pub async fn keep_interim(&self, run: &Run, interim: &Interim) -> Result<(), StoreError> {
        let (filter, update) = interim.statement(run, self.now()).alone();
        self.tasks().update_one(filter, update).await?;
        Ok(())
    }

    /// Keeps in the task of `run` which files it takes and which it makes, in place of what was there. Tells whether it is
    /// still this run's; if not, nothing has changed.
    #[operation(task = %run.task)]
    pub async fn record_files(&self, run: &Run, files: Document) -> Result<bool, StoreError> {
        let update = doc! { "$set": { FILES: files } };
        Ok(self.tasks().update_one(run.filter(), update).await?.matched_count == 1)
    }

    /// Tells all runs of `node`, which is to be empty, to stop if their plugins can, and to go on elsewhere. Returns those that had not
    /// been told.
    #[operation]
    pub async fn interrupt_runs(&self, node: &NodeName) -> Result<Vec<TaskId>, StoreError> {
        let untold = doc! { "$ne": [{ "$ifNull": [format!("${INTERRUPT}"), Bson::Null] }, "$attempt"] };
        let mut filter =
            doc! { "node": node, "status": Status::Running, DETACHED: attached(), "$expr": untold };
        let tasks = collect_ids(self.tasks().find(filter.clone()).projection(doc! { "_id": 1 })).await?;
        if !tasks.is_empty() {
            filter.insert("_id", doc! { "$in": &tasks });
            self.tasks().update_many(filter, vec![doc! { "$set": { INTERRUPT: "$attempt" } }]).await?;
        }
        Ok(tasks.into_iter().map(TaskId).collect())
    }
}

impl Start {
    pub(super) fn statement(&self) -> Statement {
        let mut like = doc! { "status": self.from, "node": &self.node };
        if let Some((attempt, instance)) = &self.claim {
            like.insert("attempt", attempt);
            like.insert("instance", instance);
        }
        put(&mut like, "mtime", self.claimed);
        Statement::of(self.task.0, like, self.transition())
    }

    fn transition(&self) -> Transition {
        let transition = started_by(Transition::to(Status::Running, self.at), self.at, self.pid)
            .compute("lease_until", server_time_in(self.lease));
        if self.claim.is_some() {
            return transition;
        }
        let before = count_in("attempt");
        let counted = doc! { "$ne": [{ "$type": "$instance" }, "missing"] };
        transition.compute("attempt", doc! { "$cond": [counted, &before, { "$add": [&before, 1] }] })
    }

    pub(super) fn is_of(&self, task: &Task) -> bool {
        task.status == Status::Running
            && task.node.as_ref() == Some(&Bson::from(&self.node))
            && task.pid() == i32::try_from(self.pid).ok()
            && task.mtime == Some(Bson::DateTime(self.at))
            // A warm runner keeps its number.
            && self.claim.as_ref().is_none_or(|(attempt, instance)| {
                task.attempt() == Some(*attempt) && task.instance() == Some(instance.as_str())
            })
    }
}

/// What every start does: that of a claimed task, and a claim for a runner that is ready.
pub(super) fn started_by(transition: Transition, at: DateTime, pid: u32) -> Transition {
    transition
        .set("started", at)
        .set("pid", i64::from(pid))
        // Each run counts what it saves anew, and not every program removes the number of the one before.
        .unset("saves")
        // Whatever an earlier attempt was given to does not have this one, and what it has said is not about it.
        .unset(DETACHED)
        .unset("external.end")
        .unset("external.called")
}
