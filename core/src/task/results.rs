//! Results: documents in which programs of Disbatch 4.4 answer that work on the database themselves. Such a document has the
//! `_id` of its task.

use bson::{Document, doc};
use disbatch_operation::operation;
use mongodb::Collection;

use crate::model::TaskId;
use crate::store::collections;
use crate::store::{Store, StoreError, Stored};

pub(crate) const RESULTS: &str = collections::RESULTS.name;

impl Store {
    fn results(&self) -> Collection<Stored> {
        self.database().collection(RESULTS)
    }

    /// What the program of a task has answered, if it has.
    #[operation(%task)]
    pub async fn find_result(&self, task: TaskId) -> Result<Option<Document>, StoreError> {
        Ok(self.results().find_one(doc! { "_id": task }).await?.map(Document::from))
    }

    /// Removes the answer of an earlier attempt, so that it is not taken for that of the next one.
    #[operation(%task)]
    pub async fn remove_result(&self, task: TaskId) -> Result<(), StoreError> {
        let removed = self.results().delete_one(doc! { "_id": task }).await.map_err(StoreError::from);
        let Err(error) = removed else { return Ok(()) };
        // There mostly is none, and who may look at least need not remove anything then.
        if error.is_forbidden() && self.find_result(task).await?.is_none() { Ok(()) } else { Err(error) }
    }
}
