//! Earlier attempts: what came out of each, kept in `tasks.attempts` when a task is tried again.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;

use super::error_line::ERROR;
use super::steps::kept;
use super::{Finish, Run};
use crate::model::{PLUGIN_VERSION, STEPS, Status, Task, TaskId};
use crate::store::{Store, StoreError};

impl Store {
    /// Keeps the outcome of an attempt. Whoever comes second changes nothing. Returns whether this call
    /// has kept it.
    pub(super) async fn keep_attempt(&self, run: &Run, finish: &Finish) -> Result<bool, StoreError> {
        let only = doc! { "started": 1, STEPS: 1, PLUGIN_VERSION: 1 };
        let stored = self.tasks().find_one(doc! { "_id": run.task }).projection(only).await?;
        let mut outcome = doc! {
            "node": &run.node, "status": finish.status, "stdout": &finish.stdout, "stderr": &finish.stderr,
            "complete": finish.complete, "ended": self.now(),
        };
        for field in ["started", PLUGIN_VERSION] {
            if let Some(value) = stored.as_ref().and_then(|task| task.get(field)) {
                outcome.insert(field, value);
            }
        }
        if let Some(steps) = kept(stored.as_ref().and_then(|task| task.get(STEPS)), finish.status) {
            outcome.insert(STEPS, steps);
        }
        for (field, value) in [("exit", &finish.exit), ("result", &finish.result)] {
            if let Some(value) = value {
                outcome.insert(field, value);
            }
        }
        if let Some(note) = &finish.note {
            outcome.insert("note", note);
        }
        if let Some(error) = finish.error() {
            outcome.insert(ERROR, error);
        }
        self.insert_attempt(run.task, run.attempt, outcome).await
    }

    /// Keeps the outcome that an ended task holds, before it is tried again by hand.
    pub(super) async fn keep_outcome(&self, task: &Task) -> Result<bool, StoreError> {
        let mut outcome = doc! { "status": task.status, "ended": task.mtime.as_ref().map(|at| at.0.clone()) };
        let fields = [("node", &task.node), ("stdout", &task.stdout), ("stderr", &task.stderr)];
        for (field, value) in fields.into_iter().chain([("complete", &task.complete)]) {
            if let Some(value) = value {
                outcome.insert(field, value);
            }
        }
        for field in ["started", "exit", "result", ERROR, PLUGIN_VERSION] {
            if let Some(value) = task.rest.get(field) {
                outcome.insert(field, value);
            }
        }
        if let Some(steps) = kept(task.rest.get(STEPS), task.status) {
            outcome.insert(STEPS, steps);
        }
        // A task of Perl's has no number; what it did was its first attempt all the same.
        self.insert_attempt(task.id, task.attempt().unwrap_or(0).max(1), outcome).await
    }

    async fn insert_attempt(
        &self,
        task: TaskId,
        attempt: i64,
        outcome: Document,
    ) -> Result<bool, StoreError> {
        let update = doc! { "$setOnInsert": outcome };
        let inserted =
            self.attempts().update_one(doc! { "task": task, "attempt": attempt }, update).upsert(true).await;
        match inserted.map_err(StoreError::from) {
            Ok(result) => Ok(result.upserted_id.is_some()),
            // Two at once: one of them has kept it.
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes an attempt that this caller has kept, if its outcome is in the task itself after all. An outcome from
    /// which somebody else has gone on meanwhile stays: there is no other copy.
    pub(super) async fn forget_attempt(&self, task: TaskId, attempt: i64) -> Result<(), StoreError> {
        let stored = self.find_task(task).await?;
        // One that was cancelled while it waited for its next attempt has the number of the last one, and nothing of it.
        let is_there = |task: &Task| {
            task.status.has_ended()
                && task.status != Status::Cancelled
                && task.attempt().unwrap_or(0).max(1) == attempt.max(1)
        };
        if stored.as_ref().is_some_and(is_there) {
            self.attempts().delete_one(doc! { "task": task, "attempt": attempt }).await?;
        }
        Ok(())
    }

    /// The earlier attempts of a task as stored, the first one first.
    #[operation(task = %task)]
    pub async fn list_attempts(&self, task: TaskId) -> Result<Vec<Document>, StoreError> {
        let found = self.attempts().find(doc! { "task": task }).sort(doc! { "attempt": 1 }).await?;
        Ok(found.map_ok(Document::from).try_collect().await?)
    }

    /// One earlier attempt of a task as stored.
    #[operation(task = %task, attempt)]
    pub async fn find_attempt(&self, task: TaskId, attempt: i64) -> Result<Option<Document>, StoreError> {
        Ok(self.attempts().find_one(doc! { "task": task, "attempt": attempt }).await?.map(Document::from))
    }

    /// The GridFS files that the attempts of a task refer to.
    #[operation(task = %task)]
    pub async fn attempt_files(&self, task: TaskId) -> Result<Vec<bson::oid::ObjectId>, StoreError> {
        let attempts = self.list_attempts(task).await?;
        let streams = |attempt: &Document| {
            ["stdout", "stderr"].map(|stream| attempt.get(stream).and_then(Bson::as_object_id))
        };
        Ok(attempts.iter().flat_map(streams).flatten().collect())
    }
}
