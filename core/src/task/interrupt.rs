//! Interruptions: what runs on a node that is to be empty is told to stop, where its plugin can, and goes on elsewhere.
//!
//! A wish is the number of the attempt that it is about, in `interrupt` of the task: no later attempt takes it for its own, so nobody has to remove it.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use super::Run;
use super::external::{DETACHED, attached};
use crate::model::{NodeName, Status, TaskId};
use crate::store::{Store, StoreError, Stored};

/// The field of a task with the attempt that is to stop.
pub(crate) const INTERRUPT: &str = "interrupt";

/// What others want of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// Somebody has asked for the task's end.
    pub cancel: bool,
    /// Its node is to be empty: whoever can go on elsewhere does.
    #[serde(default)]
    pub interrupt: bool,
}

impl Wishes {
    /// Those that `task` has for `run`.
    pub(super) fn of(task: &Document, run: &Run) -> Self {
        Self { cancel: task.get_document("cancel").is_ok(), interrupt: run.is_of(task.get(INTERRUPT)) }
    }
}

impl Store {
    /// Tells all runs of `node` to stop if they can. Returns those that had not been told.
    #[operation]
    pub async fn interrupt_runs(&self, node: &NodeName) -> Result<Vec<TaskId>, StoreError> {
        let untold = doc! { "$ne": [{ "$ifNull": [format!("${INTERRUPT}"), Bson::Null] }, "$attempt"] };
        let mut filter =
            doc! { "node": node, "status": Status::Running, DETACHED: attached(), "$expr": untold };
        let found = self.tasks().find(filter.clone()).projection(doc! { "_id": 1 }).await?;
        let found: Vec<Stored> = found.try_collect().await?;
        let tasks: Vec<_> = found.iter().filter_map(|task| task.get_object_id("_id").ok()).collect();
        if !tasks.is_empty() {
            filter.insert("_id", doc! { "$in": &tasks });
            self.tasks().update_many(filter, vec![doc! { "$set": { INTERRUPT: "$attempt" } }]).await?;
        }
        Ok(tasks.into_iter().map(TaskId).collect())
    }
}
