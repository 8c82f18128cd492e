//! Tasks in doubt: those that whoever submits them may have inserted without having noted it, so that somebody may insert them once more.
//! They do not leave `tasks` before that is noted, which is where the server finds them then. So the two carry the same
//! invariant: a task is inserted only in an operation that sees it in doubt, and it leaves only when it is not any more, which is for good.
//!
//! In doubt are a batch of each submission with an idempotency key that is not done ([`super::idempotency`]), and of each array that is being filled
//! ([`crate::arrays`]). What nobody completes is in doubt for as long as the key is remembered.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Document, doc};

use super::BATCH;
use crate::arrays;
use crate::model::{QueueId, TaskId};
use crate::store::{Store, StoreError, collect, ids_in, integer, with};

impl Store {
    /// The ids of tasks in doubt of a queue. Not all of them are there.
    pub(in crate::task) async fn in_doubt(&self, queue: QueueId) -> Result<HashSet<ObjectId>, StoreError> {
        self.doubted(doc! { "queue": queue }, None).await
    }

    /// Those of `ids` that are not in doubt.
    pub(in crate::task) async fn out_of_doubt(&self, ids: &[TaskId]) -> Result<Vec<ObjectId>, StoreError> {
        let ids: Vec<ObjectId> = ids.iter().map(|id| id.0).collect();
        let in_doubt = self.doubted(Document::new(), Some(&ids)).await?;
        Ok(ids.into_iter().filter(|id| !in_doubt.contains(id)).collect())
    }

    /// Those in doubt of notes and arrays that are like this, of `among` if that is given.
    async fn doubted(
        &self,
        like: Document,
        among: Option<&[ObjectId]>,
    ) -> Result<HashSet<ObjectId>, StoreError> {
        let batch = doc! { "$slice": ["$ids", { "$ifNull": ["$next", 0] }, integer(BATCH)] };
        let ids = match among {
            Some(among) => doc! { "$setIntersection": [batch, { "$literal": among }] },
            None => batch,
        };
        let notes = [
            doc! { "$match": with(doc! { "state": "pending" }, like.clone()) },
            doc! { "$project": { "ids": ids } },
        ];
        let notes = collect(self.submissions().aggregate(notes)).await?;
        let filling = with(doc! { "work": true, "filling": true }, like);
        let only = doc! { "next_index": 1, "count": 1 };
        let filling = collect(self.arrays().find(filling).projection(only)).await?;
        let mut ids: HashSet<ObjectId> = notes.iter().flat_map(|note| ids_in(note, "ids")).collect();
        ids.extend(filling.iter().flat_map(arrays::in_doubt));
        Ok(ids)
    }
}
