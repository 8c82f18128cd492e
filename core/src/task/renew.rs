//! A run while it goes on: its lease, its progress, and the reports of its plugin.

use disbatch_operation::operation;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use serde::{Deserialize, Serialize};

use super::external::{DETACHED, attached, is_detached};
use super::interrupt::{INTERRUPT, Wishes};
use super::statements::Statement;
use super::transition::{Transition, server_time_in};
use crate::model::{NodeName, QueueId, Status, Task, TaskId, whole_number};
use crate::store::{Store, StoreError};

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
        let mut filter = doc! { "_id": self.task };
        filter.extend(self.like());
        filter
    }

    /// What a task is like that this run has. One that was given to a web service it has not any more.
    pub(super) fn like(&self) -> Document {
        doc! {
            "status": Status::Running, "node": &self.node, "attempt": self.attempt,
            "instance": self.instance.as_deref(), DETACHED: attached(),
        }
    }

    /// Whether `task` is at this attempt.
    pub(super) fn is_of(&self, attempt: Option<&Bson>) -> bool {
        attempt.and_then(whole_number) == Some(self.attempt)
    }

    /// Whether this run has `task`.
    pub(super) fn has(&self, task: &Task) -> bool {
        task.status == Status::Running
            && task.node.as_ref() == Some(&Bson::from(&self.node))
            && self.is_of(task.rest.get("attempt"))
            && task.instance() == self.instance.as_deref()
            && !is_detached(task)
    }

    /// A longer lease, if this run still has the task.
    pub(super) fn renewal(&self, lease: Duration) -> Statement {
        let transition = Transition::within().compute("lease_until", server_time_in(lease));
        Statement { task: self.task.0, like: self.like(), transition }
    }

    /// What its plugin says about its progress, if this run still has the task.
    pub(super) fn progress(&self, mut progress: Document, now: DateTime) -> Statement {
        progress.insert("at", now);
        let transition = Transition::within().set("progress", progress);
        Statement { task: self.task.0, like: self.like(), transition }
    }
}

/// Whether a runner still has its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It has, for another lease.
    Held(Wishes),
    /// Someone has taken it away: kill the plugin, store nothing.
    Lost,
}

impl Store {
    /// Prolongs a run's lease, by the server's clock, and tells what is wanted of it.
    #[operation(task = %run.task)]
    pub async fn renew_lease(&self, run: &Run, lease: Duration) -> Result<Renewed, StoreError> {
        let (filter, update) = run.renewal(lease).alone();
        let renewed = self
            .tasks()
            .find_one_and_update(filter, update)
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

    /// Records how far a running task has come. Nothing happens if this run has ended.
    #[operation(task = %run.task)]
    pub async fn record_progress(&self, run: &Run, progress: Document) -> Result<(), StoreError> {
        let (filter, update) = run.progress(progress, self.now()).alone();
        self.tasks().update_one(filter, update).await?;
        Ok(())
    }

    /// Adds a plugin's report to the `reports` collection.
    #[operation]
    pub async fn insert_report(&self, report: Document) -> Result<(), StoreError> {
        self.reports().insert_one(report).await?;
        Ok(())
    }
}
