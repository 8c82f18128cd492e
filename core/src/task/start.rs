//! Start: a runner makes a claimed task its own (-1 -> 0).

use bson::doc;
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
    /// Starts the task `id` that was claimed in the name of `node`.
    ///
    /// Of any number of runners for one claim, the update lets one through.
    ///
    /// # Errors
    /// The database cannot be reached, or the document cannot be understood.
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn start_task(&self, id: TaskId, node: &NodeName) -> Result<Started, StoreError> {
        let filter = doc! { "_id": id, "status": Status::Claimed, "node": node };
        let update = doc! { "$set": { "status": Status::Running, "mtime": self.now() } };
        let started =
            self.tasks().find_one_and_update(filter, update).return_document(ReturnDocument::After).await?;
        match started {
            Some(document) => Ok(Started::Running(Box::new(typed("tasks", document)?))),
            None => Ok(Started::NotClaimed),
        }
    }
}
