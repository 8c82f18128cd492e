//! Observe: what those look at who wait for a task to go on. They are told by [`Store::task_changes`] when to look
//! again, or look again and again.

mod changes;
mod feed;
mod fields;

use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use mongodb::Collection;

use crate::model::{Status, Task, TaskId};
use crate::output::StreamName;
use crate::store::collections::{ARCHIVE, INBOX, TASKS};
use crate::store::{Store, StoreError};
use crate::store::{Stored, error::typed};

pub use changes::has_no_change_streams;
pub(crate) use feed::{AWAIT, LOST};
pub use feed::{Feed, FeedError, FeedFilter, Position, StatusChange};
pub use fields::{Chosen, Watched};

/// Where a task stands, without what may be large.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The task, without parameters, output and result.
    pub task: Task,
    /// Whether it has been moved to the archive.
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
