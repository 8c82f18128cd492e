//! A task with a `unique` key: no other one of its queue may have it until the task has ended.

use bson::{Document, doc};
use disbatch_operation::operation;

use super::SubmitError;
use crate::keys::{self, Key, Settled};
use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError};

/// How often the task is inserted where the index of an earlier release refuses it, and nobody has the key when it is looked at.
const TRIES: usize = 100;

impl Store {
    /// Inserts a task with a key that no other task of the queue may have while it is on its way: see [`crate::keys`]. What is there
    /// already under its id goes on. Returns whether it is new. `of_inbox`: the server inserts it, as its document is in the inbox.
    pub(super) async fn insert_unique(
        &self,
        queue: QueueId,
        text: &str,
        documents: Vec<Document>,
        of_inbox: bool,
    ) -> Result<bool, SubmitError> {
        let own = documents.iter().find_map(|task| task.get_object_id("_id").ok()).map(TaskId);
        let Some(own) = own else { return Ok(false) };
        let key = Key::Unique { queue, text: text.to_owned() };
        // Mostly it is known here already, and nothing has to be written. But an earlier submission of the same may have got as far as
        // to insert it: then it has had the key since, or is to be removed before it can have it.
        if let Some(task) = self.find_unique(queue, text).await?.filter(|task| *task != own) {
            match self.find_task_fields(own, doc! { "status": 1, "gate": 1 }).await? {
                None => return Err(SubmitError::NotUnique { task }),
                Some(found) if keys::is_pending(&found) => {}
                Some(_) => return Ok(false),
            }
        }
        let documents: Vec<Document> = documents.into_iter().map(keys::pending).collect();
        let mut tries = 0;
        let is_new = loop {
            tries += 1;
            let inserted = match of_inbox {
                true => self.insert_of_inbox(&documents).await,
                false => self.new_tasks().insert_many(&documents).await.map(drop).map_err(StoreError::from),
            };
            let Err(error) = inserted else { break true };
            if !error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) {
                return Err(error.into());
            }
            let fields = doc! { "status": 1, "gate": 1 };
            match self.find_task_fields(own, fields).await? {
                // An answer was lost, or it was submitted before.
                Some(task) if keys::is_pending(&task) => break false,
                Some(_) => return Ok(false),
                // The index of an earlier release has refused it.
                None => {}
            }
            match self.any_unique(queue, text).await? {
                Some((task, true)) => drop(self.settle_pending(task, &key).await?),
                Some((task, false)) => return Err(SubmitError::NotUnique { task }),
                // It has ended since: once more.
                None if tries < TRIES => {}
                None => return Err(error.into()),
            }
        };
        match self.settle_pending(own, &key).await? {
            Settled::GoesOn => Ok(is_new),
            Settled::Refused(task) => Err(SubmitError::NotUnique { task }),
        }
    }

    /// The task of `queue` that has the key `unique` and has not ended.
    #[operation(queue = %queue)]
    pub async fn find_unique(&self, queue: QueueId, unique: &str) -> Result<Option<TaskId>, StoreError> {
        let found =
            self.tasks().find_one(keys::with_unique(queue, unique)).projection(doc! { "_id": 1 }).await?;
        Ok(found.and_then(|task| task.get_object_id("_id").ok()).map(TaskId))
    }

    /// One that has not ended, pending or not, and whether it is pending.
    async fn any_unique(&self, queue: QueueId, unique: &str) -> Result<Option<(TaskId, bool)>, StoreError> {
        let filter = doc! { "queue": queue, "unique": unique, "status": { "$in": Status::LIVE.to_vec() } };
        let found = self.tasks().find_one(filter).projection(doc! { "status": 1, "gate": 1 }).await?;
        Ok(found.and_then(|task| Some((TaskId(task.get_object_id("_id").ok()?), keys::is_pending(&task)))))
    }
}
