//! Delete: ended tasks, archived or not, go for good, with all of their output.
//!
//! The task goes first and its output after it, so that no reader ever finds a task without its output. A
//! deleter that is killed in between leaves output that nobody can ask for. So that it is found, a tombstone
//! is written to `tasks.deleting` before anything else:
//!
//! 1. A tombstone for each task that has ended, with the ids of its files.
//! 2. The task is deleted from `tasks` if its status, `mtime` and `complete` are still those of the tombstone. If it was
//!    retried in between, or got its output, the tombstone is removed and nothing else happens.
//! 3. The copy in the archive, then chunks, files, earlier attempts, live output and recordings.
//! 4. The tombstone is `done`. It stays for an hour, so that a mover that had read the task before knows that
//!    it is gone (see [`super::archive`]).
//!
//! [`Store::finish_deleting`] takes up tombstones that are not done after ten minutes. Where the task is still
//! there, the deleter was killed before it did anything, and only the tombstone goes.

use disbatch_operation::operation;
use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::options::WriteConcern;

use super::archive::{self, ended, ids_of, parent_of, told};
use crate::model::TaskId;
use crate::store::collections::{TASKS, TOMBSTONES};
use crate::store::{Store, StoreError, collect, collect_ids};

/// A deleter that has not come to its end for so long has died: milliseconds.
const GIVEN_UP_AFTER: i64 = 10 * 60 * 1000;

/// So many unfinished deletions of others are finished at once.
const UNFINISHED: i64 = 200;

impl Store {
    /// Deletes those of `ids` that have ended, or are in the archive, with everything that belongs to them.
    /// Returns how many. What an error leaves half done [`Store::finish_deleting`] finishes.
    #[operation(tasks = ids.len())]
    pub async fn delete_tasks(&self, ids: &[TaskId]) -> Result<u64, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let ids = self.out_of_doubt(ids).await?;
        let of_batch = doc! { "_id": { "$in": &ids } };
        // What is in `tasks` counts, so it is noted last.
        self.note_deletion(archive::COLLECTION, of_batch.clone()).await?;
        self.settle_before_leaving(&ids).await?;
        // Those whose dependents or schedules have not been told of their end, or whose locks were not taken back, go the
        // next time.
        self.note_deletion(TASKS.name, doc! { "$and": [&of_batch, ended(), told()] }).await?;
        let tombstones =
            collect(self.tombstones().find(doc! { "_id": { "$in": ids }, "done": Bson::Null })).await?;
        // While somebody still tells how their runs have ended.
        let leaving: Vec<ObjectId> =
            tombstones.iter().filter_map(|task| task.get_object_id("_id").ok()).collect();
        self.settle_filesets_of(&leaving).await?;
        let deleted = self.delete_unchanged(TASKS.name, &tombstones).await?;
        let (gone, alive) = self.by_whether_gone(tombstones, &[TASKS.name]).await?;
        self.note_gone(
            gone.iter().filter(|task| task.get_str("from").is_ok_and(|c| c == TASKS.name)),
            deleted,
        );
        self.forget(&alive).await?;
        self.delete_rest(&gone).await?;
        Ok(gone.len() as u64)
    }

    /// Finishes what deleters that were killed have left. Returns how many tasks' output it has deleted.
    #[operation]
    pub async fn finish_deleting(&self) -> Result<u64, StoreError> {
        let long_ago = doc! { "$lt": ["$at", { "$subtract": ["$$NOW", GIVEN_UP_AFTER] }] };
        let left = doc! { "done": Bson::Null, "$expr": long_ago };
        let tombstones = collect(self.tombstones().find(left).limit(UNFINISHED)).await?;
        let (gone, alive) = self.by_whether_gone(tombstones, &[TASKS.name, archive::COLLECTION]).await?;
        self.forget(&alive).await?;
        self.delete_rest(&gone).await?;
        Ok(gone.len() as u64)
    }

    /// The first step, on the server: parameters and output of the tasks do not travel.
    async fn note_deletion(&self, collection: &str, which: Document) -> Result<(), StoreError> {
        let note = [
            doc! { "$match": which },
            doc! { "$project": {
                "status": 1, "mtime": 1, "complete": 1, "queue": 1, "dependents": 1, "from": collection, "at": "$$NOW",
                "files": { "$filter": {
                    "input": ["$stdout", "$stderr"], "cond": { "$eq": [{ "$type": "$$this" }, "objectId"] },
                } },
            } },
            doc! { "$merge": {
                "into": TOMBSTONES.name, "on": "_id", "whenMatched": "replace", "whenNotMatched": "insert",
            } },
        ];
        let collection = self.database().collection::<Document>(collection);
        let _nothing = collect(collection.aggregate(note).write_concern(WriteConcern::majority())).await?;
        Ok(())
    }

    /// Tombstones of tasks that are in none of `collections`, and of those that are.
    async fn by_whether_gone(
        &self,
        tombstones: Vec<Document>,
        collections: &[&str],
    ) -> Result<(Vec<Document>, Vec<Document>), StoreError> {
        let ids = ids_of(&tombstones);
        let mut alive = std::collections::HashSet::new();
        for collection in collections {
            alive.extend(self.ids_in(collection, &ids).await?);
        }
        let is_gone = |task: &Document| task.get_object_id("_id").is_ok_and(|id| !alive.contains(&id));
        Ok(tombstones.into_iter().partition(is_gone))
    }

    async fn forget(&self, tombstones: &[Document]) -> Result<(), StoreError> {
        let ids = ids_of(tombstones);
        if !ids.is_empty() {
            self.tombstones().delete_many(doc! { "_id": { "$in": ids }, "done": Bson::Null }).await?;
        }
        Ok(())
    }

    /// The third and fourth step.
    async fn delete_rest(&self, tombstones: &[Document]) -> Result<(), StoreError> {
        let ids = ids_of(tombstones);
        if ids.is_empty() {
            return Ok(());
        }
        let parents: Vec<Bson> = tombstones.iter().filter_map(parent_of).collect();
        self.ask_dependents_again(&parents).await?;
        let of_tasks = doc! { "task": { "$in": &ids } };
        self.archive().delete_many(doc! { "_id": { "$in": &ids } }).await?;
        let files = self.files_of(&ids, tombstones).await?;
        // A file is found as long as its document is there, so that goes last.
        self.chunks().delete_many(doc! { "files_id": { "$in": &files } }).await?;
        self.files().delete_many(doc! { "_id": { "$in": &files } }).await?;
        self.attempts().delete_many(of_tasks.clone()).await?;
        self.live().delete_many(of_tasks).await?;
        self.forget_aside(&ids).await?;
        self.forget_recordings(&ids).await?;
        let done = vec![doc! { "$set": { "done": "$$NOW" } }];
        self.tombstones().update_many(doc! { "_id": { "$in": ids } }, done).await?;
        Ok(())
    }

    /// The files of these tasks: those that they, or their attempts, refer to, and those that say whose they
    /// are.
    async fn files_of(&self, ids: &[Bson], tombstones: &[Document]) -> Result<Vec<ObjectId>, StoreError> {
        let noted = tombstones.iter().filter_map(|task| task.get_array("files").ok()).flatten();
        let mut files: BTreeSet<ObjectId> = noted.filter_map(Bson::as_object_id).collect();
        let of_tasks = doc! {
            "filename": { "$in": ["stdout", "stderr"] }, "metadata.task_id": { "$in": ids },
        };
        files.extend(collect_ids(self.files().find(of_tasks).projection(doc! { "_id": 1 })).await?);
        let (of_tasks, streams) = (doc! { "task": { "$in": ids } }, doc! { "stdout": 1, "stderr": 1 });
        // One after the other: each may have megabytes of output as text.
        let mut attempts = self.attempts().find(of_tasks).projection(streams).await?;
        while let Some(attempt) = attempts.try_next().await? {
            files.extend(["stdout", "stderr"].iter().filter_map(|stream| attempt.get_object_id(stream).ok()));
        }
        Ok(files.into_iter().collect())
    }
}
