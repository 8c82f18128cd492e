//! Observe: what those look at who wait for a task to go on. They are told by [`Store::task_changes`] when to look
//! again, or look again and again.

mod feed;
mod fields;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::StreamExt;
use mongodb::Collection;
use serde::Deserialize;

use crate::model::{Status, Task, TaskId};
use crate::output::StreamName;
use crate::store::collections::{ARCHIVE, INBOX, LIVE, TASKS};
use crate::store::error::typed;
use crate::store::{Rows, Store, StoreError, Stored, attended};
pub(crate) use feed::{AWAIT, LOST};
pub use feed::{Feed, FeedError, FeedFilter, Position, StatusChange};
pub use fields::{Chosen, Watched};

/// Where a task stands, without what may be large.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The task, without parameters, output and result.
    pub task: Task,
    pub archived: bool,
}

impl Observed {
    /// The number of its latest attempt, 0 if nobody counted.
    pub fn attempt(&self) -> i64 {
        self.task.attempt().unwrap_or(0)
    }

    /// Whether a runner has started it and not stored its end.
    pub fn is_running(&self) -> bool {
        self.task.status == Status::Running
    }

    /// Whether nothing will be added to the output of this attempt.
    pub fn is_over(&self, attempt: i64) -> bool {
        !self.is_running() || self.attempt() != attempt
    }

    /// How far the plugin says it is.
    pub fn progress(&self) -> Option<&Document> {
        self.task.rest.get("progress").and_then(Bson::as_document)
    }
}

impl Store {
    /// Where a task stands, also when it is in the archive or the inbox. `None`: there is no such task.
    #[operation(task = %id)]
    pub async fn observe_task(&self, id: TaskId) -> Result<Option<Observed>, StoreError> {
        let only = doc! { "queue": 1, "status": 1, "node": 1, "mtime": 1, "attempt": 1, "progress": 1 };
        let find = |collection: Collection<Stored>| {
            let only = only.clone();
            async move { collection.find_one(doc! { "_id": id }).projection(only).await }
        };
        if let Some(task) = find(self.tasks()).await? {
            return Ok(Some(Observed { task: typed(TASKS.name, task)?, archived: false }));
        }
        if let Some(task) = find(self.archived_tasks()).await? {
            return Ok(Some(Observed { task: typed(ARCHIVE.name, task)?, archived: true }));
        }
        let new = self.find_in_inbox(id, only).await?;
        new.map(|task| Ok(Observed { task: typed(INBOX.name, task)?, archived: false })).transpose()
    }

    /// What a task holds as its output: null, text, or the id of a file. `None`: there is no such task.
    #[operation(task = %id)]
    pub async fn task_output(&self, id: TaskId, stream: StreamName) -> Result<Option<Bson>, StoreError> {
        let filter = doc! { "_id": id };
        match field(&self.tasks(), filter.clone(), stream).await? {
            Some(output) => Ok(Some(output)),
            None => field(&self.archived_tasks(), filter, stream).await,
        }
    }

    /// What is kept of the output of an earlier attempt, likewise. `None`: nothing is kept of such an attempt.
    #[operation(task = %id, attempt)]
    pub async fn attempt_output(
        &self,
        id: TaskId,
        attempt: i64,
        stream: StreamName,
    ) -> Result<Option<Bson>, StoreError> {
        field(&self.attempts(), doc! { "task": id, "attempt": attempt }, stream).await
    }

    fn archived_tasks(&self) -> Collection<Stored> {
        self.database().collection(ARCHIVE.name)
    }
}

async fn field(
    collection: &Collection<Stored>,
    filter: Document,
    stream: StreamName,
) -> Result<Option<Bson>, StoreError> {
    let found = collection.find_one(filter).projection(doc! { stream.as_str(): 1 }).await?;
    Ok(found.map(|mut document| document.remove(stream.as_str()).unwrap_or(Bson::Null)))
}

/// A change, as far as it matters.
#[derive(Debug, Deserialize)]
struct Change {
    task: Option<Bson>,
}

impl Store {
    /// The ids of tasks as they change, and as their live output grows, from now on. A hint, not a record: a
    /// change that is told may be visible already, and one before this call is not told.
    ///
    /// # Errors
    /// The database cannot be reached, or has no change streams ([`StoreError::has_no_change_streams`]); within the stream
    /// when it is lost.
    #[operation]
    pub async fn task_changes(&self) -> Result<Rows<TaskId>, StoreError> {
        let of_interest = doc! { "$match": { "$or": [
            { "ns.coll": TASKS.name, "operationType": { "$in": ["insert", "update", "replace", "delete"] } },
            { "ns.coll": LIVE.name, "operationType": { "$in": ["insert", "update"] } },
        ] } };
        // Nothing of the tasks themselves, which may be large. The ids of live output name their task.
        let task = doc! { "$ifNull": ["$documentKey._id.task", "$documentKey._id"] };
        let only_ids = doc! { "$project": { "_id": 1, "task": task } };
        let changes = self.database().watch().pipeline([of_interest, only_ids]).await?.with_type::<Change>();
        let ids = changes.filter_map(|change| {
            std::future::ready(match change {
                Ok(change) => change.task.and_then(|id| id.as_object_id()).map(|id| Ok(TaskId(id))),
                Err(error) => Some(Err(StoreError::from(error))),
            })
        });
        Ok(attended(ids))
    }
}
