//! Start: a runner makes a claimed task its own (-1 -> 0).

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::external::DETACHED;
use super::statements::Statement;
use super::transition::{Transition, count_in, server_time_in};
use super::{Run, Waiting};
use crate::model::{NodeName, Status, Task, TaskId};
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// What a runner says when it starts a task.
#[derive(Debug, Clone)]
pub struct Start {
    pub task: TaskId,
    /// What it is before: claimed, or started for this runner, which cannot tell its DEN that it has taken it.
    pub from: Status,
    /// The node that claimed it.
    pub node: NodeName,
    /// Which claim it was started for, if the DEN that did says so: the attempt, and the start of that DEN.
    pub claim: Option<(i64, String)>,
    /// When that claim was made, as the task says. A claim is not acknowledged by a majority: after a change of the
    /// primary it may be gone, and its successor would have the same number.
    pub claimed: Option<DateTime>,
    /// The time of the start, the same in every repetition.
    pub at: DateTime,
    /// How long the task is the runner's until it renews that.
    pub lease: Duration,
    /// The runner's process.
    pub pid: u32,
    /// Where and since when the task has waited, for [`crate::series`]. `None`: it is not noted, unless the task
    /// itself says so, as in [`Store::start_task`].
    pub waiting: Option<Waiting>,
}

/// What a runner found when it wanted to start its task.
#[derive(Debug)]
pub enum Started {
    /// The task is running, and this runner alone has it.
    Running(Box<Task>, Run),
    /// No such task is claimed for this node: someone else has it, or it was given back. Touch nothing.
    NotClaimed,
}

impl Store {
    /// Starts a claimed task.
    ///
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
                let run = Run {
                    task: start.task,
                    queue: task.queue,
                    node: start.node.clone(),
                    attempt: task.attempt().unwrap_or(0),
                    instance: task.instance().map(str::to_owned),
                };
                Started::Running(Box::new(task), run)
            }
            None => Started::NotClaimed,
        })
    }
}

impl Store {
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
}

impl Start {
    /// The transition, and what the task must be like for it.
    pub(super) fn statement(&self) -> Statement {
        let mut like = doc! { "status": self.from, "node": &self.node };
        if let Some((attempt, instance)) = &self.claim {
            like.insert("attempt", attempt);
            like.insert("instance", instance);
        }
        if let Some(claimed) = self.claimed {
            like.insert("mtime", claimed);
        }
        Statement { task: self.task.0, like, transition: self.transition() }
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

    /// Whether it is this start that the task runs by.
    pub(super) fn is_of(&self, task: &Task) -> bool {
        task.status == Status::Running
            && task.node.as_ref() == Some(&Bson::from(&self.node))
            && task.pid() == i32::try_from(self.pid).ok()
            && task.mtime.as_ref().is_some_and(|mtime| mtime.0 == Bson::DateTime(self.at))
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
