//! Archive: ended tasks move out of the way, from `tasks` to `tasks.archive`. Their output in GridFS stays where
//! it is, and is read as before.
//!
//! **Invariant.** At every moment an ended task is in `tasks`, or in `tasks.archive`, or in both; where it is in
//! both, the one in `tasks` counts and readers pass over the other. So a mover may be killed at any point:
//! nothing is lost and nothing is seen twice.
//!
//! A move is three steps for a batch of tasks:
//!
//! Those whose end others have not been told of yet (see [`crate::gates`]) are left where they are. The schedules of tasks
//! are told before (see [`crate::schedules`]).
//!
//! 1. The server copies those that have ended (`$merge` by `_id`, replacing an older copy), acknowledged by a
//!    majority. A copy says that it is `moving`.
//! 2. A task is deleted from `tasks` if its status and `mtime` are still those of its copy. A task that was
//!    retried in between stays where it is.
//! 3. A copy whose task stayed is removed, if it is still the copy that was compared; a copy whose task is gone is
//!    no longer `moving`.
//!
//! Steps 2 and 3 look at copies, not at what this mover did: they finish the moves of one that was killed, and
//! any number of movers may do them at once. The copies that are `moving` have an index of their own and are
//! few, which is why a count of both collections stays cheap.

use disbatch_operation::operation;
use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;

use super::delete::TOMBSTONES;
use crate::model::{QueueId, Status, TaskId};
use crate::store::collections;
use crate::store::collections::TASKS;
use crate::store::{Store, StoreError};

pub(crate) const COLLECTION: &str = collections::ARCHIVE.name;

/// So many unfinished moves of others are finished at once.
const UNFINISHED: i64 = 500;

/// What a move has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Archived {
    /// Tasks that are in the archive only now.
    pub moved: u64,
    /// Tasks that changed meanwhile and stayed.
    pub stayed: u64,
}

/// Matches the status of tasks that have ended.
pub(crate) fn ended() -> Document {
    doc! { "$or": [{ "status": { "$in": [-3, -5, -6] } }, { "status": { "$gte": 1 } }] }
}

/// Matches ended tasks of which nothing is left to be told to others.
pub(super) fn told() -> Document {
    let not = || doc! { "$ne": true };
    doc! { "dependents": not(), "unsettled": not(), "holds_locks": not() }
}

impl Store {
    /// Moves those of `ids` that have ended to the archive.
    ///
    /// # Errors
    /// The database cannot be reached. What was moved by then is moved; the rest is as it was, or is finished by
    /// [`Store::finish_archiving`].
    #[operation(tasks = ids.len())]
    pub async fn archive_tasks(&self, ids: &[TaskId]) -> Result<Archived, StoreError> {
        if ids.is_empty() {
            return Ok(Archived::default());
        }
        let ids: Vec<ObjectId> = ids.iter().map(|id| id.0).collect();
        let of_batch = doc! { "_id": { "$in": &ids } };
        self.settle_before_leaving(&ids).await?;
        self.copy_each(&ids).await?;
        self.finish(of_batch, i64::try_from(ids.len()).unwrap_or(i64::MAX)).await
    }

    /// Copies tasks to the archive. What is refused is tried with ever fewer of them, until it is known which one it is about; that one
    /// goes without its history, or stays.
    async fn copy_each(&self, ids: &[ObjectId]) -> Result<(), StoreError> {
        let left_alone = self.left_alone();
        let ids = ids.iter().filter(|id| !left_alone.contains(&Bson::from(**id))).copied();
        let mut parts: Vec<Vec<ObjectId>> = vec![ids.collect()];
        while let Some(mut part) = parts.pop() {
            let error = match self.copy(&part, &[]).await {
                Ok(()) => continue,
                Err(error) if !error.is_about_one() => return Err(error),
                Err(error) => error,
            };
            if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([part, rest]);
                continue;
            }
            match self.copy(&part, &[doc! { "$unset": ["history", "progress", "external"] }]).await {
                Ok(()) => {}
                Err(other) if !other.is_about_one() => return Err(other),
                Err(_) => {
                    let why = format!("it cannot be archived: {error}");
                    for task in part {
                        self.set_aside(TaskId(task), &why).await;
                    }
                }
            }
        }
        Ok(())
    }

    async fn copy(&self, ids: &[ObjectId], without: &[Document]) -> Result<(), StoreError> {
        // Those whose dependents or schedules have not been told of their end, or whose locks were not taken back, go the
        // next time.
        let mut copy = vec![doc! { "$match": { "$and": [{ "_id": { "$in": ids } }, ended(), told()] } }];
        copy.extend(without.iter().cloned());
        copy.push(doc! { "$set": { "archived": "$$NOW", "moving": true } });
        copy.push(doc! { "$merge": {
            "into": COLLECTION, "on": "_id", "whenMatched": "replace", "whenNotMatched": "insert",
        } });
        let copied = self.tasks().aggregate(copy).write_concern(crate::store::majority()).await?;
        let _nothing: Vec<Document> = copied.try_collect().await?;
        Ok(())
    }

    /// Finishes what movers that were killed have left.
    #[operation]
    pub async fn finish_archiving(&self) -> Result<Archived, StoreError> {
        self.finish(doc! {}, UNFINISHED).await
    }

    /// The second and third step for the copies that `which` finds.
    async fn finish(&self, which: Document, limit: i64) -> Result<Archived, StoreError> {
        let mut filter = which;
        filter.insert("moving", true);
        let compared = doc! { "status": 1, "mtime": 1, "queue": 1, "dependents": 1 };
        let copies = self.archive().find(filter).projection(compared).limit(limit).await?;
        let copies: Vec<Document> = copies.map_ok(Document::from).try_collect().await?;
        if copies.is_empty() {
            return Ok(Archived::default());
        }
        let moved = self.delete_unchanged(TASKS.name, &copies).await?;
        let ids: Vec<&Bson> = copies.iter().filter_map(|copy| copy.get("_id")).collect();
        let live = self.ids_in(TASKS.name, &ids).await?;
        // One that was deleted for good while its copy was being made must not come back.
        let deleted = self.ids_in(TOMBSTONES, &ids).await?;
        let is_stale = |copy: &&Document| is_in(&live, copy) || is_in(&deleted, copy);
        self.note_gone(copies.iter().filter(|copy| !is_in(&live, copy)), moved);
        let stale: Vec<Document> = copies.iter().filter(is_stale).cloned().collect();
        let stayed = live.len() as u64;
        self.delete_unchanged(COLLECTION, &stale).await?;
        let settled: Vec<Bson> = copies
            .iter()
            .filter(|copy| !is_stale(copy))
            .filter_map(|copy| copy.get("_id").cloned())
            .collect();
        // Where nothing is tried again, nobody waits for a success.
        let parents: Vec<Bson> = copies.iter().filter(|copy| !is_stale(copy)).filter_map(parent_of).collect();
        self.ask_dependents_again(&parents).await?;
        if !settled.is_empty() {
            let settled = doc! { "_id": { "$in": settled }, "moving": true };
            self.archive().update_many(settled, doc! { "$unset": { "moving": "" } }).await?;
        }
        Ok(Archived { moved, stayed })
    }

    /// Deletes those documents of a collection that still have the status, `mtime` and `dependents` that `seen` has.
    /// Returns how many.
    pub(super) async fn delete_unchanged(
        &self,
        collection: &str,
        seen: &[Document],
    ) -> Result<u64, StoreError> {
        if seen.is_empty() {
            return Ok(0);
        }
        if collection == TASKS.name {
            self.remove_left_in_inbox(seen).await?;
        }
        let one = |seen: &Document| {
            let field = |name: &str| seen.get(name).cloned().unwrap_or(Bson::Null);
            // Somebody who waits for it and comes just now must find it, or not find it from the beginning.
            let unchanged = doc! {
                "_id": field("_id"), "status": field("status"), "mtime": field("mtime"),
                "dependents": field("dependents"),
            };
            doc! { "q": unchanged, "limit": 1 }
        };
        let deletes: Vec<Document> = seen.iter().map(one).collect();
        let command = doc! {
            "delete": collection, "deletes": deletes, "ordered": false,
            "writeConcern": { "w": "majority" },
        };
        let answer = self.database().run_command(command).await;
        let answer = answer.inspect_err(|_| self.doubt_counters())?;
        Ok(answer.get("n").and_then(crate::model::whole_number).unwrap_or(0).unsigned_abs())
    }

    /// Removes what a mover that died has left in the inbox of tasks that are about to leave: nobody could see any more that they were made.
    async fn remove_left_in_inbox(&self, tasks: &[Document]) -> Result<(), StoreError> {
        let ids = tasks.iter().filter_map(|task| task.get("_id").cloned()).collect();
        match self.remove_moved(ids).await {
            // A user that an older release made: there is no inbox.
            Err(error) if error.is_forbidden() => Ok(()),
            removed => removed,
        }
    }

    /// Counts tasks that are no longer in `tasks`, of which this process has deleted `deleted`. If these are not all,
    /// somebody else has deleted tasks at the same time, and which of them are whose nobody knows.
    pub(super) fn note_gone<'a>(&self, gone: impl Iterator<Item = &'a Document>, deleted: u64) {
        let gone: Vec<&Document> = gone.collect();
        if gone.len() as u64 != deleted {
            self.doubt_counters();
            return;
        }
        for task in gone {
            let status = task.get("status").and_then(crate::model::whole_number);
            if let (Ok(queue), Some(status)) = (task.get_object_id("queue"), status) {
                self.moved(QueueId(queue), Some(Status::from_code(status)), None, 1);
            }
        }
    }

    /// Those of `ids` that a collection has.
    pub(crate) async fn ids_in(
        &self,
        collection: &str,
        ids: &[&Bson],
    ) -> Result<HashSet<ObjectId>, StoreError> {
        let collection = self.database().collection::<Document>(collection);
        let found = collection.find(doc! { "_id": { "$in": ids } }).projection(doc! { "_id": 1 }).await?;
        let found: Vec<Document> = found.try_collect().await?;
        Ok(found.iter().filter_map(|document| document.get_object_id("_id").ok()).collect())
    }
}

/// The id of a task that others wait for, or have waited for.
pub(super) fn parent_of(task: &Document) -> Option<Bson> {
    task.contains_key("dependents").then(|| task.get("_id").cloned()).flatten()
}

fn is_in(ids: &HashSet<ObjectId>, document: &Document) -> bool {
    document.get_object_id("_id").is_ok_and(|id| ids.contains(&id))
}
