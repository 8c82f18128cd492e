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
use crate::store::{Store, StoreError, collect, ids_in, integer, put, with};

impl Store {
    /// The ids of tasks in doubt, of all queues or of one. Not all of them are there.
    pub(in crate::task) async fn in_doubt(
        &self,
        queue: Option<QueueId>,
    ) -> Result<HashSet<ObjectId>, StoreError> {
        let mut of_queue = Document::new();
        put(&mut of_queue, "queue", queue);
        let batch = doc! { "$slice": ["$ids", { "$ifNull": ["$next", 0] }, integer(BATCH)] };
        let notes = [
            doc! { "$match": with(doc! { "state": "pending" }, of_queue.clone()) },
            doc! { "$project": { "ids": batch } },
        ];
        let notes = collect(self.submissions().aggregate(notes)).await?;
        let filling = with(doc! { "work": true, "filling": true }, of_queue);
        let filling = collect(self.arrays().find(filling).projection(doc! { "next_index": 1 })).await?;
        let mut ids: HashSet<ObjectId> = notes.iter().flat_map(|note| ids_in(note, "ids")).collect();
        ids.extend(filling.iter().flat_map(arrays::in_doubt));
        Ok(ids)
    }

    /// Those of `ids` that are not in doubt.
    pub(in crate::task) async fn out_of_doubt(&self, ids: &[TaskId]) -> Result<Vec<ObjectId>, StoreError> {
        let in_doubt = self.in_doubt(None).await?;
        Ok(ids.iter().map(|id| id.0).filter(|id| !in_doubt.contains(id)).collect())
    }
}
