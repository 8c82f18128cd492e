//! Search: what the REST API and the pages read.

use std::collections::BTreeSet;

use bson::{Document, doc};
use futures::{Stream, StreamExt, TryStreamExt};
use mongodb::options::FindOptions;

use crate::model::TaskId;
use crate::store::{Store, StoreError};

/// A search over tasks. The caller has checked that its filter is allowed and indexed.
#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    /// MongoDB filter.
    pub filter: Document,
    /// At most so many; all when `None`.
    pub limit: Option<i64>,
    /// Leave out so many first.
    pub skip: u64,
    /// Which fields to return; all when `None`.
    pub projection: Option<Document>,
    /// The order; the server's when `None`.
    pub sort: Option<Document>,
}

impl Store {
    /// The tasks that match, as stored.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the filter.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn search_tasks(&self, query: TaskQuery) -> Result<Vec<Document>, StoreError> {
        self.stream_tasks(query).await?.try_collect().await
    }

    /// The tasks that match, as stored, a batch at a time: for results of any size.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the filter; within the stream when it goes away later.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn stream_tasks(
        &self,
        query: TaskQuery,
    ) -> Result<impl Stream<Item = Result<Document, StoreError>> + Send + Unpin + 'static, StoreError> {
        let options = FindOptions::builder()
            .skip(query.skip)
            .limit(query.limit)
            .projection(query.projection)
            .sort(query.sort)
            .build();
        let cursor = self.tasks().find(query.filter).with_options(options).await?;
        Ok(cursor.map(|task| Ok(task?)))
    }

    /// How many tasks match.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the filter.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn count_tasks(&self, filter: Document) -> Result<u64, StoreError> {
        Ok(self.tasks().count_documents(filter).await?)
    }

    /// One task as stored.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, fields(task = %id), err(level = "debug"))]
    pub async fn find_task_document(&self, id: TaskId) -> Result<Option<Document>, StoreError> {
        Ok(self.tasks().find_one(doc! { "_id": id }).await?)
    }

    /// The fields of each index of `tasks` in order, without repetition; text and other special indexes are
    /// left out, and so are those that hold only some of the tasks. An empty list when the collection does not exist yet.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn task_index_fields(&self) -> Result<BTreeSet<Vec<String>>, StoreError> {
        let indexes: Vec<mongodb::IndexModel> = match self.tasks().list_indexes().await {
            Ok(cursor) => cursor.try_collect().await?,
            Err(error) => match StoreError::from(error) {
                missing if missing.write_failure().is_some_and(|failure| failure.is_no_collection()) => {
                    Vec::new()
                }
                other => return Err(other),
            },
        };
        let is_whole = |options: &mongodb::options::IndexOptions| {
            options.partial_filter_expression.is_none() && options.sparse != Some(true)
        };
        let ordinary = |index: &mongodb::IndexModel| {
            index.options.as_ref().is_none_or(is_whole)
                && index.keys.values().all(|order| {
                    order.as_i32().is_some() || order.as_f64().is_some() || order.as_i64().is_some()
                })
        };
        Ok(indexes.into_iter().filter(ordinary).map(|index| index.keys.keys().cloned().collect()).collect())
    }
}
