//! Archive: ended tasks move out of the way, from `tasks` to `tasks.archive`. Their output in GridFS stays where
//! it is, and is read as before.
//!
//! **Invariant.** At every moment an ended task is in `tasks`, or in `tasks.archive`, or in both; where it is in
//! both, the one in `tasks` counts and readers pass over the other. So a mover may be killed at any point:
//! nothing is lost and nothing is seen twice.
//!
//! A move is three steps for a batch of tasks:
//!
//! Those whose end others have not been told of yet (see [`crate::gates`]) are left where they are, and so are those that
//! somebody may still insert (`submit/noted.rs`). The schedules of tasks are told before (see [`crate::schedules`]).
//!
//! 1. The server copies those that have ended (`$merge` by `_id`, replacing an older copy), acknowledged by a
//!    majority. A copy says that it is `moving`.
//! 2. A task is deleted from `tasks` if its status, `mtime` and `complete` are still those of its copy. A task that was
//!    retried in between, or got its output, stays where it is.
//! 3. A copy whose task stayed is removed, if it is still the copy that was compared; a copy whose task is gone is
//!    no longer `moving`.
//!
//! Steps 2 and 3 look at copies, not at what this mover did: they finish the moves of one that was killed, and
//! any number of movers may do them at once. The copies that are `moving` have an index of their own and are
//! few, which is why a count of both collections stays cheap.
//!
//! **Retention** says which ended tasks a queue's policy wants archived or deleted. They are found by the index `{queue, status}`, one status
//! after the other. Within a queue and a status the index is in the order of creation, in which tasks also grow old, more or less; so it is
//! enough to look at the first [`LOOKED_AT`] of each, and no look reads more than that, however many tasks are kept.

use std::collections::HashSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use mongodb::Collection;
use mongodb::action::Action;
use mongodb::options::{Hint, WriteConcern};

use crate::model::{Queue, QueueId, Retention, TaskId};
use crate::store::collections::{self, QUEUES, TASKS, TOMBSTONES};
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, collect_ids, count_of, integer, millis, with};

pub(crate) const COLLECTION: &str = collections::ARCHIVE.name;

/// So many unfinished moves of others are finished at once.
const UNFINISHED: i64 = 500;

/// At most so many tasks of a queue and a status are looked at at once.
const LOOKED_AT: i64 = 5_000;

/// Plugins may invent statuses; of a queue, so many are looked at.
const STATUSES: usize = 64;

/// How much longer than others a task stays that does not say whether its output is stored. A day, as its age may be the time that it ran.
const INCOMPLETE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Archived {
    pub moved: u64,
    pub stayed: u64,
}

pub(crate) fn ended() -> Document {
    doc! { "$or": [{ "status": { "$in": [-3, -5, -6] } }, { "status": { "$gte": 1 } }] }
}

/// Matches ended tasks of which nothing is left to be told to others.
pub(super) fn told() -> Document {
    let not = || doc! { "$ne": true };
    doc! { "dependents": not(), "unsettled": not(), "holds_locks": not() }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Tasks,
    Archive,
}

impl Place {
    const fn collection(self) -> &'static str {
        match self {
            Self::Tasks => TASKS.name,
            Self::Archive => COLLECTION,
        }
    }
}

impl Store {
    /// Moves those of `ids` that have ended to the archive. What an error leaves half done [`Store::finish_archiving`] finishes.
    #[operation(tasks = ids.len())]
    pub async fn archive_tasks(&self, ids: &[TaskId]) -> Result<Archived, StoreError> {
        if ids.is_empty() {
            return Ok(Archived::default());
        }
        let ids = self.out_of_doubt(ids).await?;
        let of_batch = doc! { "_id": { "$in": &ids } };
        self.settle_before_leaving(&ids).await?;
        self.copy_each(&ids).await?;
        self.finish(of_batch, integer(ids.len())).await
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
        let _nothing = collect(self.tasks().aggregate(copy).write_concern(WriteConcern::majority())).await?;
        Ok(())
    }

    /// Finishes what movers that were killed have left.
    #[operation]
    pub async fn finish_archiving(&self) -> Result<Archived, StoreError> {
        self.finish(doc! {}, UNFINISHED).await
    }

    /// The second and third step for the copies that `which` finds.
    async fn finish(&self, which: Document, limit: i64) -> Result<Archived, StoreError> {
        let filter = with(which, doc! { "moving": true });
        let compared = doc! { "status": 1, "mtime": 1, "complete": 1, "queue": 1, "dependents": 1 };
        let copies = collect(self.archive().find(filter).projection(compared).limit(limit)).await?;
        if copies.is_empty() {
            return Ok(Archived::default());
        }
        let moved = self.delete_unchanged(TASKS.name, &copies).await?;
        let ids = ids_of(&copies);
        let live = self.ids_in(TASKS.name, &ids).await?;
        // One that was deleted for good while its copy was being made must not come back.
        let deleted = self.ids_in(TOMBSTONES.name, &ids).await?;
        self.note_gone(copies.iter().filter(|copy| !is_in(&live, copy)), moved);
        let stayed = live.len() as u64;
        let is_stale = |copy: &Document| is_in(&live, copy) || is_in(&deleted, copy);
        let (stale, settled): (Vec<Document>, Vec<Document>) = copies.into_iter().partition(is_stale);
        self.delete_unchanged(COLLECTION, &stale).await?;
        // Where nothing is tried again, nobody waits for a success.
        let parents: Vec<Bson> = settled.iter().filter_map(parent_of).collect();
        self.ask_dependents_again(&parents).await?;
        if !settled.is_empty() {
            let settled = doc! { "_id": { "$in": ids_of(&settled) }, "moving": true };
            self.archive().update_many(settled, doc! { "$unset": { "moving": "" } }).await?;
        }
        Ok(Archived { moved, stayed })
    }

    /// Deletes those documents of a collection that still have the status, `mtime`, `complete` and `dependents` that `seen` has.
    /// Returns how many.
    pub(super) async fn delete_unchanged(
        &self,
        collection: &str,
        seen: &[Document],
    ) -> Result<u64, StoreError> {
        if collection == TASKS.name {
            // What a mover that died has left in the inbox: nobody could see any more that they were made. For a user that an older release
            // made there is no inbox.
            StoreError::unless_forbidden(self.remove_moved(ids_of(seen)).await)?;
        }
        let unchanged = |seen: &Document| {
            let field = |name: &str| seen.get(name).cloned().unwrap_or(Bson::Null);
            // Perl's runner leaves `mtime` alone when it stores output. Somebody who waits for it and comes just now must find it, or
            // not find it from the beginning.
            doc! {
                "_id": field("_id"), "status": field("status"), "mtime": field("mtime"),
                "complete": field("complete"), "dependents": field("dependents"),
            }
        };
        let deleted = self.delete_each(collection, seen.iter().map(unchanged).collect()).await;
        deleted.inspect_err(|_| self.doubt_counters())
    }

    pub(crate) async fn delete_each(
        &self,
        collection: &str,
        these: Vec<Document>,
    ) -> Result<u64, StoreError> {
        if these.is_empty() {
            return Ok(0);
        }
        let deletes: Vec<Document> = these.into_iter().map(|one| doc! { "q": one, "limit": 1 }).collect();
        let command = doc! {
            "delete": collection, "deletes": deletes, "ordered": false, "writeConcern": { "w": "majority" },
        };
        let answer = self.database().run_command(command).await?;
        Ok(count_of(&answer, "n").unwrap_or(0))
    }

    /// Counts tasks that are no longer in `tasks`, of which this process has deleted `deleted`. If these are not all,
    /// somebody else has deleted tasks at the same time, and which of them are whose nobody knows.
    pub(super) fn note_gone<'a>(&self, gone: impl Iterator<Item = &'a Document>, deleted: u64) {
        let gone: Vec<&Document> = gone.collect();
        if gone.len() as u64 != deleted {
            self.doubt_counters();
            return;
        }
        gone.into_iter().for_each(|task| self.moved_from(task, None));
    }

    /// Which of these tasks are in the archive.
    #[operation(tasks = ids.len())]
    pub async fn archived_of(&self, ids: &[TaskId]) -> Result<HashSet<ObjectId>, StoreError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let ids: Vec<Bson> = ids.iter().map(|id| Bson::from(*id)).collect();
        self.ids_in(COLLECTION, &ids).await
    }

    pub(crate) async fn ids_in(
        &self,
        collection: &str,
        ids: &[Bson],
    ) -> Result<HashSet<ObjectId>, StoreError> {
        let collection = self.database().collection::<Document>(collection);
        let found = collection.find(doc! { "_id": { "$in": ids } }).projection(doc! { "_id": 1 });
        Ok(collect_ids(found).await?.into_iter().collect())
    }

    #[operation]
    pub async fn queues_with_retention(&self) -> Result<Vec<(Queue, Retention)>, StoreError> {
        let documents = collect(self.queues().find(doc! { "retention": { "$type": "object" } })).await?;
        let readable = |document| {
            let queue: Queue = typed(QUEUES.name, document).ok()?;
            let retention = Retention::of(&queue);
            (!retention.is_none()).then_some((queue, retention))
        };
        Ok(documents.into_iter().filter_map(readable).collect())
    }

    /// Up to `limit` tasks of `queue` in `place` that ended longer than `age` ago, by the server's clock, and may leave as far as their
    /// submission goes: others are not to wait behind those of one that nobody completes.
    #[operation(queue = %queue, ?place)]
    pub async fn ended_before(
        &self,
        queue: QueueId,
        place: Place,
        age: Duration,
        limit: usize,
    ) -> Result<Vec<TaskId>, StoreError> {
        let index = Hint::Keys(doc! { "queue": 1, "status": 1 });
        match self.ended(queue, (place, age), limit, Some(index)).await {
            // Somebody has dropped the collection, or nobody has created the index yet.
            Err(error) if error.is_no_index() => self.ended(queue, (place, age), limit, None).await,
            found => found,
        }
    }

    async fn ended(
        &self,
        queue: QueueId,
        (place, age): (Place, Duration),
        limit: usize,
        index: Option<Hint>,
    ) -> Result<Vec<TaskId>, StoreError> {
        let collection = self.database().collection::<Document>(place.collection());
        let settled = match place {
            Place::Tasks => doc! { "_id": { "$nin": self.in_doubt(queue).await? } },
            Place::Archive => Document::new(),
        };
        let mut found: Vec<TaskId> = Vec::new();
        for status in self.ended_statuses(queue, &collection, index.as_ref()).await? {
            let Some(room) = limit.checked_sub(found.len()).filter(|room| *room > 0) else { break };
            let pipeline = [
                doc! { "$match": with(doc! { "queue": queue, "status": &status }, settled.clone()) },
                // Before the age is looked at: this is what bounds the work.
                doc! { "$limit": LOOKED_AT },
                doc! { "$match": { "$expr": has_ended_before(age) } },
                doc! { "$limit": integer(room) },
                doc! { "$project": { "_id": 1 } },
            ];
            let old = collection.aggregate(pipeline).optional(index.clone(), |old, index| old.hint(index));
            found.extend(collect_ids(old).await?.into_iter().map(TaskId));
        }
        Ok(found)
    }

    /// The statuses of ended tasks that `queue` has, by one look into the index for each.
    async fn ended_statuses(
        &self,
        queue: QueueId,
        collection: &Collection<Document>,
        index: Option<&Hint>,
    ) -> Result<Vec<Bson>, StoreError> {
        let mut statuses = [-6, -5, -3].map(Bson::from).to_vec();
        let mut further = doc! { "$gte": 1 };
        while statuses.len() < STATUSES {
            let next = collection
                .find_one(doc! { "queue": queue, "status": further })
                .sort(doc! { "queue": 1, "status": 1 })
                .projection(doc! { "_id": 0, "status": 1 })
                .optional(index.cloned(), |next, index| next.hint(index));
            let Some(status) = next.await?.and_then(|mut task| task.remove("status")) else { break };
            further = doc! { "$gt": &status };
            statuses.push(status);
        }
        Ok(statuses)
    }
}

pub(super) fn ids_of(documents: &[Document]) -> Vec<Bson> {
    documents.iter().filter_map(|document| document.get("_id").cloned()).collect()
}

/// The id of a task that others wait for, or have waited for.
pub(super) fn parent_of(task: &Document) -> Option<Bson> {
    task.contains_key("dependents").then(|| task.get("_id").cloned()).flatten()
}

fn is_in(ids: &HashSet<ObjectId>, document: &Document) -> bool {
    document.get_object_id("_id").is_ok_and(|id| ids.contains(&id))
}

/// A condition: the last change of an ended task is longer ago than `age`. Perl's runner stores a final status first, then the output with
/// `complete`, and changes `mtime` with neither; who dies in between never says `complete`.
fn has_ended_before(age: Duration) -> Document {
    let unchanged = |age| unchanged_since(server_time_before("$$NOW", age));
    let is_whole = doc! { "$or": [{ "$lt": ["$status", 1] }, { "$gt": ["$complete", Bson::Null] }] };
    doc! { "$or": [{ "$and": [is_whole, unchanged(age)] }, unchanged(age + INCOMPLETE)] }
}

pub(crate) fn server_time_before(now: impl Into<Bson>, age: Duration) -> Document {
    doc! { "$subtract": [now.into(), millis(age)] }
}

/// A condition: the last change of a task was not after `limit`. It is `mtime`, by the clock of the host that has written it, or the last entry
/// of the history, by the server's, if that is later: a host whose clock is late makes no task old. Old documents hold `mtime` as epoch seconds;
/// those count too. One without it is never old.
pub(crate) fn unchanged_since(limit: Document) -> Document {
    let epoch = doc! { "$convert": {
        "input": { "$multiply": [{ "$toLong": "$mtime" }, 1000] }, "to": "date",
        "onError": "$$NOW", "onNull": "$$NOW",
    } };
    let changed = doc! { "$switch": {
        "branches": [
            { "case": { "$eq": [{ "$type": "$mtime" }, "date"] }, "then": "$mtime" },
            { "case": { "$in": [{ "$type": "$mtime" }, ["int", "long"]] }, "then": epoch },
        ],
        "default": "$$NOW",
    } };
    doc! { "$lte": [{ "$max": [changed, last_noted()] }, limit] }
}

/// The time of the last entry of a task's history, by the server's clock. Null: there is none.
pub(super) fn last_noted() -> Document {
    doc! { "$cond": [
        { "$isArray": "$history" }, { "$arrayElemAt": ["$history.at", -1] }, Bson::Null,
    ] }
}
