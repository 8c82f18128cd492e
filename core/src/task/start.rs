//! Start: a runner makes a claimed task its own (-1 -> 0).

use bson::{Bson, DateTime, doc};
use mongodb::options::ReturnDocument;

use crate::model::{NodeName, Status, Task, TaskId};
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// What a runner found when it wanted to start its task.
#[derive(Debug)]
pub enum Started {
    /// The task is running, and this runner alone has it.
    Running(Box<Task>),
    /// No such task is claimed for this node: someone else has it, or it was given back. Touch nothing.
    NotClaimed,
}

impl Store {
    /// Starts the task `id` that was claimed in the name of `node`, as of `at`.
    ///
    /// Of any number of runners for one claim, the update lets one through. May be called again with the
    /// same time when an answer was lost: a task that this call has started counts as started.
    ///
    /// # Errors
    /// The database cannot be reached, or the document cannot be understood.
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn start_task(&self, id: TaskId, node: &NodeName, at: DateTime) -> Result<Started, StoreError> {
        let filter = doc! { "_id": id, "status": Status::Claimed, "node": node };
        let update = doc! { "$set": { "status": Status::Running, "mtime": at } };
        let started =
            self.tasks().find_one_and_update(filter, update).return_document(ReturnDocument::After).await?;
        match started {
            Some(document) => Ok(Started::Running(Box::new(typed("tasks", document)?))),
            None => Ok(match self.find_task(id).await? {
                Some(task) if is_ours(&task, node, at) => Started::Running(Box::new(task)),
                _ => Started::NotClaimed,
            }),
        }
    }
}

fn is_ours(task: &Task, node: &NodeName, at: DateTime) -> bool {
    task.status == Status::Running
        && task.node.as_ref() == Some(&Bson::from(node))
        && task.mtime.as_ref().is_some_and(|mtime| mtime.0 == Bson::DateTime(at))
}
