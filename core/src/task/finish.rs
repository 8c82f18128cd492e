//! Finish: a runner stores what came out (0 -> final), status and output in one update.

use bson::{Bson, Document, doc};

use crate::model::{NodeName, Status, Task, TaskId};
use crate::store::{Store, StoreError};

/// What a runner stores at the end of a task.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The final status, at least 1.
    pub status: Status,
    /// Null, text, or the id of a GridFS file.
    pub stdout: Bson,
    /// Null, text, or the id of a GridFS file.
    pub stderr: Bson,
    /// Whether all output was stored.
    pub complete: bool,
    /// The structured result that the plugin gave, if it did.
    pub result: Option<Document>,
}

/// What became of the end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It is stored.
    Stored,
    /// The task is no longer this node's running one: it was orphaned or changed by hand. Nothing was stored.
    NotRunning,
}

impl Store {
    /// Ends the running task `id` of `node`.
    ///
    /// May be called again with the same values when an answer was lost: a task that already holds them
    /// counts as stored.
    ///
    /// # Errors
    /// The database cannot be reached, or the document would be too large
    /// ([`crate::store::WriteFailure::is_too_large`]).
    #[tracing::instrument(skip_all, fields(task = %id, status = %finish.status), err(level = "debug"))]
    pub async fn finish_task(
        &self,
        id: TaskId,
        node: &NodeName,
        finish: &Finish,
    ) -> Result<Finished, StoreError> {
        let filter = doc! { "_id": id, "status": Status::Running, "node": node };
        let mut set = doc! {
            "status": finish.status,
            "stdout": &finish.stdout,
            "stderr": &finish.stderr,
            "mtime": self.now(),
            "complete": finish.complete,
        };
        if let Some(result) = &finish.result {
            set.insert("result", result);
        }
        if self.tasks().update_one(filter, doc! { "$set": set }).await?.matched_count == 1 {
            return Ok(Finished::Stored);
        }
        let stored = self.find_task(id).await?;
        Ok(if stored.is_some_and(|task| holds(&task, node, finish)) {
            Finished::Stored
        } else {
            Finished::NotRunning
        })
    }

    /// Records how far a running task has come. Nothing happens if it is not running any more.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn record_progress(
        &self,
        id: TaskId,
        node: &NodeName,
        mut progress: Document,
    ) -> Result<(), StoreError> {
        progress.insert("at", self.now());
        let filter = doc! { "_id": id, "status": Status::Running, "node": node };
        self.tasks().update_one(filter, doc! { "$set": { "progress": progress } }).await?;
        Ok(())
    }

    /// Adds a plugin's report to the `reports` collection.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the document.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn insert_report(&self, report: Document) -> Result<(), StoreError> {
        self.reports().insert_one(report).await?;
        Ok(())
    }
}

fn holds(task: &Task, node: &NodeName, finish: &Finish) -> bool {
    task.status == finish.status
        && task.node.as_ref() == Some(&Bson::from(node))
        && task.stdout.as_ref() == Some(&finish.stdout)
        && task.stderr.as_ref() == Some(&finish.stderr)
        && task.complete == Some(Bson::Boolean(finish.complete))
}
