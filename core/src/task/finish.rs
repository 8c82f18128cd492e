//! Finish: a runner stores what came out (0 -> final, or -7 to be tried again), status and output in one
//! update.

use std::time::Duration;

use bson::{Bson, Document, doc};

use super::Run;
use super::transition::{Transition, server_time_in};
use crate::model::{Status, Task};
use crate::store::{Store, StoreError};

/// What a runner stores at the end of an attempt.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The status that it ended with: at least 1, or -3 if it was terminated, -5 if it was not to run at all.
    pub status: Status,
    /// Null, text, or the id of a GridFS file.
    pub stdout: Bson,
    /// Null, text, or the id of a GridFS file.
    pub stderr: Bson,
    /// Whether all output was stored.
    pub complete: bool,
    /// The structured result that the plugin gave, if it did.
    pub result: Option<Document>,
    /// How the plugin ended: exit code, signal, times, memory.
    pub exit: Option<Document>,
    /// Why it ended like that, where that is not the plugin's doing.
    pub note: Option<String>,
}

/// What became of the end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It is stored.
    Stored,
    /// The task is no longer this run's: it was orphaned or changed by hand. Nothing was stored.
    NotRunning,
}

impl Store {
    /// Ends the task of `run`.
    ///
    /// May be called again with the same values when an answer was lost: a task that already holds them
    /// counts as stored.
    ///
    /// # Errors
    /// The database cannot be reached, or the document would be too large
    /// ([`crate::store::WriteFailure::is_too_large`]).
    #[tracing::instrument(skip_all, fields(task = %run.task, status = %finish.status), err(level = "debug"))]
    pub async fn finish_task(&self, run: &Run, finish: &Finish) -> Result<Finished, StoreError> {
        let mut update = Transition::to(finish.status, self.now())
            .set("stdout", finish.stdout.clone())
            .set("stderr", finish.stderr.clone())
            .set("complete", finish.complete)
            .end_of_run();
        if let Some(result) = &finish.result {
            update = update.set("result", result.clone());
        }
        if let Some(exit) = &finish.exit {
            update = update.set("exit", exit.clone());
        }
        if let Some(note) = &finish.note {
            update = update.note(note);
        }
        if self.tasks().update_one(run.filter(), update.pipeline()).await?.matched_count == 1 {
            return Ok(Finished::Stored);
        }
        let stored = self.find_task(run.task).await?;
        Ok(if stored.is_some_and(|task| holds(&task, run, finish)) {
            Finished::Stored
        } else {
            Finished::NotRunning
        })
    }

    /// Ends an attempt that failed, and lets the task be tried again after `pause`: its outcome is kept
    /// beside the task, which becomes -7. May be repeated like [`Store::finish_task`].
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(task = %run.task, status = %finish.status), err(level = "debug"))]
    pub async fn retry_later(
        &self,
        run: &Run,
        finish: &Finish,
        pause: Duration,
    ) -> Result<Finished, StoreError> {
        let kept = self.keep_attempt(run, finish).await?;
        let why = format!("{}; to be tried again", finish.note.as_deref().unwrap_or("failed"));
        let update = deferred(self, pause, &why).pipeline();
        if self.tasks().update_one(run.filter(), update).await?.matched_count == 1 {
            return Ok(Finished::Stored);
        }
        let stored = self.find_task(run.task).await?;
        if stored.is_some_and(|task| task.status == Status::Deferred && run.is_of(task.rest.get("attempt"))) {
            return Ok(Finished::Stored);
        }
        if kept {
            self.forget_attempt(run.task, run.attempt).await?;
        }
        Ok(Finished::NotRunning)
    }
}

/// A failed attempt is over, and the task waits for the next.
pub(super) fn deferred(store: &Store, pause: Duration, why: &str) -> Transition {
    Transition::to(Status::Deferred, store.now())
        .without_node()
        .set("stdout", Bson::Null)
        .set("stderr", Bson::Null)
        .compute("failures", doc! { "$add": [{ "$ifNull": ["$failures", 0] }, 1] })
        .compute("run_at", server_time_in(pause))
        .end_of_run()
        .unset("progress")
        .note(why)
}

fn holds(task: &Task, run: &Run, finish: &Finish) -> bool {
    task.status == finish.status
        && run.is_of(task.rest.get("attempt"))
        && task.node.as_ref() == Some(&Bson::from(&run.node))
        && task.stdout.as_ref() == Some(&finish.stdout)
        && task.stderr.as_ref() == Some(&finish.stderr)
        && task.complete == Some(Bson::Boolean(finish.complete))
}
