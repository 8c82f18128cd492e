//! Search: what the REST API and the pages read. What leaves the database here has no secure parameters, see
//! [`crate::secrets`].

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use disbatch_operation::operation;
use futures::{StreamExt, TryStreamExt};
use mongodb::action::Action;
use mongodb::options::FindOptions;
use serde::de::DeserializeOwned;

use super::claim::occupying;
use super::pages::MERGED;
use super::{ERROR, archive};
use crate::model::document::readable;
use crate::model::{QueueId, Status, Task, TaskId};
use crate::secrets::concealed;
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Rows, Store, StoreError, attended, collect, count_of, integer};

/// So many tasks are fetched at once: they may have large output, and each client waits for its own.
pub(super) const AT_ONCE: u32 = 32;

/// Params of so many bytes are shown on a line.
const SMALL: i64 = 4096;

/// A search over tasks. The caller has checked that its filter is allowed and indexed.
#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    pub filter: Document,
    pub limit: Option<i64>,
    pub skip: u64,
    pub projection: Option<Document>,
    pub sort: Option<Document>,
    pub archive: bool,
    /// So long the server may work on it, waiting for the client not counted; as long as it takes when `None`.
    pub max_time: Option<Duration>,
}

impl Store {
    /// The queue and the tenant of a task, also of an archived one. `None`: there is no such task, or it is of no queue.
    #[operation]
    pub async fn queue_of_task(&self, id: TaskId) -> Result<Option<(QueueId, Option<String>)>, StoreError> {
        let only = doc! { "queue": 1, "tenant": 1 };
        let task = match self.find_task_fields(id, only.clone()).await? {
            Some(task) => Some(task),
            None => self.find_in_inbox(id, only).await?,
        };
        Ok(task.and_then(|task| {
            let tenant = task.get_str("tenant").ok().map(str::to_owned);
            Some((QueueId(task.get_object_id("queue").ok()?), tenant))
        }))
    }

    #[operation]
    pub async fn search_tasks(&self, query: TaskQuery) -> Result<Vec<Document>, StoreError> {
        self.stream_tasks(query).await?.try_collect().await
    }

    /// The tasks that match, as stored, a batch at a time: for results of any size.
    #[operation]
    pub async fn stream_tasks(&self, query: TaskQuery) -> Result<Rows<Document>, StoreError> {
        let tasks = self.raw_tasks();
        let cursor = if query.archive {
            let most = query.max_time;
            let found = tasks.aggregate(with_archive(query)).with_type::<RawDocumentBuf>();
            found.batch_size(AT_ONCE).optional(most, |found, most| found.max_time(most)).await?
        } else {
            let options = FindOptions::builder()
                .skip(query.skip)
                .limit(query.limit)
                .projection(query.projection)
                .sort(query.sort)
                .batch_size(AT_ONCE)
                .max_time(query.max_time)
                .build();
            tasks.find(query.filter).with_options(options).await?
        };
        Ok(attended(cursor.map(|task| Ok(concealed(readable(task?))))))
    }

    #[tracing::instrument(skip_all, err(level = "debug"))]
    async fn count_tasks(&self, filter: Document, max_time: Option<Duration>) -> Result<u64, StoreError> {
        let tasks = self.tasks();
        Ok(tasks.count_documents(filter).optional(max_time, |count, most| count.max_time(most)).await?)
    }

    #[operation]
    pub async fn count_query(&self, query: TaskQuery) -> Result<u64, StoreError> {
        if query.archive {
            self.count_with_archive(query.filter, query.max_time).await
        } else {
            self.count_tasks(query.filter, query.max_time).await
        }
    }

    /// How many tasks match, archived ones among them. One that is on its way to the archive counts once. Each step of it
    /// may take as long as `max_time`.
    #[operation]
    pub async fn count_with_archive(
        &self,
        filter: Document,
        max_time: Option<Duration>,
    ) -> Result<u64, StoreError> {
        // The copies of tasks that are still in `tasks` are few, and have an index of their own.
        let moving = doc! { "$and": [{ "moving": true }, &filter] };
        let twice = [
            doc! { "$match": moving },
            also_in_tasks(),
            doc! { "$match": { LIVE: { "$ne": [] } } },
            doc! { "$count": "twice" },
        ];
        let archive = self.archive();
        let twice = archive.aggregate(twice).optional(max_time, |found, most| found.max_time(most));
        let twice: Option<Document> = twice.await?.try_next().await?;
        let twice = twice.and_then(|found| count_of(&found, "twice")).unwrap_or(0);
        let archived = archive.count_documents(filter.clone());
        let archived = archived.optional(max_time, |count, most| count.max_time(most)).await?;
        let live = self.count_tasks(filter, max_time).await?;
        Ok((live + archived).saturating_sub(twice))
    }

    /// One task as stored, from the archive or the inbox if it is there.
    #[operation]
    pub async fn find_task_anywhere(&self, id: TaskId) -> Result<Option<Document>, StoreError> {
        match self.find_task_fields(id, doc! {}).await? {
            Some(task) => Ok(Some(task)),
            None => self.find_in_inbox(id, doc! {}).await,
        }
    }

    #[operation(task = %id)]
    pub async fn find_task_fields(
        &self,
        id: TaskId,
        projection: Document,
    ) -> Result<Option<Document>, StoreError> {
        let found = self.stored_task::<RawDocumentBuf>(id, projection).await?;
        Ok(found.map(|(task, _)| {
            let mut task = readable(task);
            task.remove("moving");
            concealed(task)
        }))
    }

    /// Fields of a task as they are stored, and whether that is in the archive.
    pub(crate) async fn stored_task<T: DeserializeOwned + Send + Sync>(
        &self,
        id: TaskId,
        only: Document,
    ) -> Result<Option<(T, bool)>, StoreError> {
        // In this order: a task leaves `tasks` only when it is in the archive.
        for (collection, archived) in [(self.tasks(), false), (self.archive(), true)] {
            let collection = collection.clone_with_type::<T>();
            let found = collection.find_one(doc! { "_id": id }).projection(only.clone()).await?;
            if let Some(task) = found {
                return Ok(Some((task, archived)));
            }
        }
        Ok(None)
    }

    /// A task that is in the archive and no longer in `tasks`, with all that it was submitted with.
    #[operation(task = %id)]
    pub async fn find_archived(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        let found = self.archive().find_one(doc! { "_id": id }).await?;
        found.map(|task| typed(crate::store::collections::ARCHIVE.name, task)).transpose()
    }

    /// The fields of each index of `tasks` in order, without repetition; text and other special indexes are
    /// left out, and so are those of ours that hold only some of the tasks. An operator's own are all told, as Perl reads those that there
    /// are. An empty list when the collection does not exist yet.
    #[operation]
    pub async fn task_index_fields(&self) -> Result<BTreeSet<Vec<String>>, StoreError> {
        let indexes: Vec<mongodb::IndexModel> =
            match self.tasks().list_indexes().await.map_err(StoreError::from) {
                Err(error) if error.is_no_collection() => Vec::new(),
                indexes => indexes?.try_collect().await?,
            };
        let ours = self.declared_indexes(&TASKS);
        let is_told = |options: &mongodb::options::IndexOptions| {
            let is_whole = options.partial_filter_expression.is_none() && options.sparse != Some(true);
            is_whole || !ours.iter().any(|index| options.name == Some(index.name()))
        };
        let ordinary = |index: &mongodb::IndexModel| {
            index.options.as_ref().is_none_or(is_told)
                && index.keys.values().all(|order| {
                    order.as_i32().is_some() || order.as_f64().is_some() || order.as_i64().is_some()
                })
        };
        Ok(indexes.into_iter().filter(ordinary).map(|index| index.keys.keys().cloned().collect()).collect())
    }

    /// The tasks that are claimed or running on the node with this name, at most `limit` of them, as stored and without what
    /// may be large: `queue`, `status`, `started`, `mtime`, `attempt`, `progress`, and `params` and `array` that are small, `final_of`. Found by an
    /// index. Those that web services work on are on no node.
    #[operation(%node)]
    pub async fn tasks_on_node(&self, node: &str, limit: i64) -> Result<Vec<Document>, StoreError> {
        let only = doc! { "queue": 1, "status": 1, "started": 1, "mtime": 1, "attempt": 1, "progress": 1, "params": small("$params"),
        "array": small("$array"), "final_of": 1 };
        collect(self.tasks().find(occupying(node)).projection(only).limit(limit)).await
    }

    /// The newest of those that failed on the node with this name, of these queues, at most `limit` of them. Of more queues than
    /// an index is read for at once there are none.
    #[operation(%node)]
    pub async fn failed_on_node(
        &self,
        node: &str,
        queues: &[QueueId],
        limit: i64,
    ) -> Result<Vec<Document>, StoreError> {
        if queues.len() > MERGED {
            return Ok(Vec::new());
        }
        let only = doc! {
            "queue": 1, "status": 1, "mtime": 1, "exit": 1, ERROR: 1, "params": small("$params"), "array": small("$array"), "final_of": 1,
        };
        let filter = doc! { "node": node, "status": Status::Failed, "queue": { "$in": queues } };
        collect(self.tasks().find(filter).projection(only).sort(doc! { "_id": -1 }).limit(limit)).await
    }
}

const LIVE: &str = "in_tasks_too";

fn also_in_tasks() -> Document {
    doc! { "$lookup": { "from": TASKS.name, "localField": "_id", "foreignField": "_id", "as": LIVE } }
}

/// A search in `tasks` and in the archive. A task in both is that in `tasks`, whether the filter finds it there or not.
fn with_archive(query: TaskQuery) -> Vec<Document> {
    let archived = [
        doc! { "$match": &query.filter },
        also_in_tasks(),
        doc! { "$match": { LIVE: [] } },
        doc! { "$project": { LIVE: 0, "moving": 0 } },
    ];
    let mut stages = vec![
        doc! { "$match": query.filter },
        doc! { "$unionWith": { "coll": archive::COLLECTION, "pipeline": archived } },
    ];
    let skip = integer(query.skip);
    stages.extend(query.sort.filter(|sort| !sort.is_empty()).map(|sort| doc! { "$sort": sort }));
    stages.extend((skip > 0).then(|| doc! { "$skip": skip }));
    stages.extend(query.limit.filter(|limit| *limit > 0).map(|limit| doc! { "$limit": limit }));
    stages.extend(query.projection.filter(|only| !only.is_empty()).map(|only| doc! { "$project": only }));
    stages
}

/// What is at a path, if that is an object that is no larger than a line shows.
fn small(path: &str) -> Document {
    let is_object = doc! { "$eq": [{ "$type": path }, "object"] };
    let size = doc! { "$cond": [is_object, { "$bsonSize": path }, i64::MAX] };
    doc! { "$cond": [{ "$lte": [size, SMALL] }, path, bson::Bson::Null] }
}
