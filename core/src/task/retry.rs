//! Retry: an ended task is queued again by hand, as a new attempt. What came out before is kept.

use bson::{Bson, doc};

use super::transition::Transition;
use crate::model::{Status, TaskId};
use crate::store::{Store, StoreError};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// It is queued again.
    Queued,
    /// It has not ended, or someone else has changed it meanwhile: it is in this status now.
    NotEnded(Status),
    /// There is no such task.
    NoSuchTask,
}

impl Store {
    /// Queues an ended task again (-3, -5, -6 or final -> -2) with all its attempts before it. Its output and
    /// result are kept in `tasks.attempts`.
    ///
    /// Of two who retry the same task at the same time, one does it.
    ///
    /// # Errors
    /// The database cannot be reached, or a live task has the same `unique` key
    /// ([`StoreError::write_failure`] says so).
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn retry_task(&self, id: TaskId, note: &str) -> Result<Retried, StoreError> {
        let Some(task) = self.find_task(id).await? else { return Ok(Retried::NoSuchTask) };
        if !task.status.has_ended() {
            return Ok(Retried::NotEnded(task.status));
        }
        let kept = self.keep_outcome(&task).await?;
        // A task of Perl's has no number; what it did was its first attempt all the same.
        let attempt = task.attempt().unwrap_or(0).max(1);
        let mut filter = doc! {
            "_id": id, "status": task.status, "attempt": task.rest.get("attempt").cloned(),
        };
        filter.insert("mtime", task.mtime.as_ref().map(|mtime| mtime.0.clone()));
        let mut update = Transition::to(Status::Queued, self.now())
            .without_node()
            .set("stdout", Bson::Null)
            .set("stderr", Bson::Null)
            .set("attempt", attempt)
            .end_of_run()
            .note(note);
        for field in ["complete", "result", "progress", "exit", "failures", "cancel", "started", "run_at"] {
            update = update.unset(field);
        }
        let changed = self.tasks().update_one(filter, update.pipeline()).await.map_err(StoreError::from);
        if let Ok(result) = &changed
            && result.matched_count == 1
        {
            self.moved(task.queue, Some(task.status), Some(Status::Queued), 1);
            return Ok(Retried::Queued);
        }
        if kept {
            self.forget_attempt(id, attempt).await?;
        }
        changed.inspect_err(|_| self.doubt_counters())?;
        let status = self.find_task(id).await?.map(|task| task.status);
        Ok(status.map_or(Retried::NoSuchTask, Retried::NotEnded))
    }
}
