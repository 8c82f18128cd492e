//! Submit: a task is born queued (-2) and belongs to no node.
//!
//! Submissions are acknowledged by a majority, which is also what lets change streams deliver them at once.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;

use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError};

/// How many tasks are sent to the server at once.
const BATCH: usize = 1_000;

/// A long submission says in the log how far it is after each so many tasks.
const PROGRESS: usize = 100_000;

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The ids of the new tasks, in the order of their parameters.
    pub ids: Vec<TaskId>,
}

impl Store {
    /// Creates one task in `queue` for each of `params`.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses a document (too large, for instance). Tasks before the
    /// refused one exist then.
    #[tracing::instrument(skip_all, fields(queue = %queue, tasks = params.len()), err(level = "debug"))]
    pub async fn submit_tasks(&self, queue: QueueId, params: Vec<Document>) -> Result<Submitted, StoreError> {
        let now = self.now();
        let documents: Vec<Document> =
            params.into_iter().map(|params| new_task(queue, params, now)).collect();
        let ids = documents.iter().filter_map(|task| task.get_object_id("_id").ok()).map(TaskId).collect();
        if !documents.is_empty() {
            self.tasks().insert_many(documents).await?;
        }
        Ok(Submitted { ids })
    }

    /// Creates one task in `queue` for each document of `collection` that `filter` finds, with the parameters
    /// that `params` makes of it. Reads and writes in batches: of all tasks, only the ids are held in memory.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the filter or a document. Tasks of earlier batches exist then.
    #[tracing::instrument(skip_all, fields(queue = %queue, collection), err(level = "debug"))]
    pub async fn submit_tasks_for(
        &self,
        queue: QueueId,
        collection: &str,
        filter: Document,
        params: impl Fn(&Document) -> Document,
    ) -> Result<Submitted, StoreError> {
        // Tasks made of tasks must not be found by the same search.
        let before = (collection == self.tasks().name()).then(|| doc! { "_id": { "$lt": ObjectId::new() } });
        let filter = doc! { "$and": [filter, before.unwrap_or_default()] };
        let found = self.database().collection::<Document>(collection).find(filter).await?;
        let mut batches = found.try_chunks(BATCH);
        let mut ids = Vec::new();
        while let Some(documents) = batches.try_next().await.map_err(|error| StoreError::from(error.1))? {
            let batch = documents.iter().map(&params).collect();
            let before = ids.len() / PROGRESS;
            ids.extend(self.submit_tasks(queue, batch).await?.ids);
            if ids.len() / PROGRESS > before {
                tracing::info!(queue = %queue, collection, tasks = ids.len(), "creating tasks");
            }
        }
        Ok(Submitted { ids })
    }
}

fn new_task(queue: QueueId, params: Document, now: DateTime) -> Document {
    doc! {
        "_id": ObjectId::new(),
        "queue": queue,
        "status": Status::Queued,
        "node": Bson::Null,
        "params": params,
        "stdout": Bson::Null,
        "stderr": Bson::Null,
        "ctime": now,
        "mtime": now,
    }
}
