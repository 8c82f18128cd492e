//! Which queued tasks may be claimed next: ids in the order of their queue, read from an index and nothing else.

use std::time::Instant;

use bson::doc;
use bson::oid::ObjectId;
use futures::TryStreamExt;
use mongodb::options::{FindOptions, Hint};

use super::claim::{BATCH_READ, claimable, is_newest_first};
use super::read_ahead::{Reading, Search, Window};
use crate::clock::chance;
use crate::model::Queue;
use crate::store::error::is_no_index;
use crate::store::{Store, StoreError, Stored};

impl Store {
    /// The next tasks to try, at most so many, and whether the queue has none.
    pub(super) async fn next_candidates(
        &self,
        queue: &Queue,
        window: &mut Window,
        wanted: usize,
    ) -> Result<(Vec<ObjectId>, bool), StoreError> {
        let mut search = Search::of(wanted);
        while let Some(reading) = window.reading(&search, Instant::now(), chance()) {
            let began = Instant::now();
            let ids = self.read_ids(queue, reading).await?;
            window.read(&mut search, reading, ids, (began, Instant::now()));
        }
        let exhausted = window.is_exhausted(&search);
        Ok((window.take(wanted), exhausted))
    }

    async fn read_ids(&self, queue: &Queue, reading: Reading) -> Result<Vec<ObjectId>, StoreError> {
        let newest_first = is_newest_first(queue);
        let (past, direction) = if newest_first { ("$lt", -1) } else { ("$gt", 1) };
        // From the first id that there can be, so that documents with ids of another kind are not in the way.
        let id = match reading.past {
            Some(id) => doc! { past: id },
            None if newest_first => doc! { "$lte": ObjectId::from_bytes([u8::MAX; 12]) },
            None => doc! { "$gte": ObjectId::from_bytes([0; 12]) },
        };
        let mut filter = claimable(queue);
        filter.insert("_id", self.not_left_alone(id));
        // It is one of Perl's. It has each of the possible nodes in order; the server merges them as it reads, backwards for the
        // newest first. The other direction has an index of its own, which is not there where `indexes` is "lean".
        let index = doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 };
        let options = |hint| {
            FindOptions::builder()
                .projection(doc! { "_id": 1 })
                .sort(doc! { "_id": direction })
                .limit(i64::try_from(reading.limit).unwrap_or(i64::MAX))
                .batch_size(BATCH_READ)
                .hint(hint)
                .build()
        };
        let tasks = self.tasks();
        let found = tasks.find(filter.clone()).with_options(options(Some(Hint::Keys(index)))).await;
        let found = match found {
            // Nobody has created it yet: the server finds another way.
            Err(error) if is_no_index(&error) => tasks.find(filter).with_options(options(None)).await?,
            found => found?,
        };
        let documents: Vec<Stored> = found.try_collect().await?;
        Ok(documents.iter().filter_map(|task| task.get_object_id("_id").ok()).collect())
    }
}
