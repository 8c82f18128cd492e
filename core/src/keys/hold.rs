//! Holding: how a key comes to name a task, in place of one that does not count and cannot come to.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};
use mongodb::options::ReadConcern;

use super::{Key, WANTS_KEY, is_pending, mark_of, projection};
use crate::model::{TaskId, whole_number};
use crate::store::{Store, StoreError};

/// How often it is tried while others get in the way.
const TURNS: u32 = 200;

/// So long is waited between two of them, as what others have written has to get to a majority of the servers.
const PAUSE: Duration = Duration::from_millis(5);

/// Whether a task has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The key names it, and no other task counts, as long as it is pending or has its mark.
    Held,
    Taken(TaskId),
}

/// The task that a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) task: ObjectId,
    /// Differs each time that a key comes to name a task, save for repetitions of the same.
    pub(super) hold: ObjectId,
}

impl Holder {
    pub(super) fn of(key: &Document) -> Option<Self> {
        Some(Self { task: key.get_object_id("task").ok()?, hold: key.get_object_id("hold").ok()? })
    }
}

/// How it is with the task that a key names.
enum Standing {
    /// It counts, or another one does that no key names.
    Counts(TaskId),
    /// That has changed just now, or not every server knows it: it is to be looked at again.
    Changing,
    /// It does not count, and never will by this hold.
    Over,
}

impl Store {
    /// Has the key name `task`, which is pending (`hold`: its id), has this mark, or is to fire. Whether it has the key holds as long
    /// as it is that.
    ///
    /// # Errors
    /// The database cannot be reached, or this user has no right to keys and nothing else keeps their tasks apart.
    pub(crate) async fn hold_key(&self, key: &Key, task: TaskId, hold: ObjectId) -> Result<Hold, StoreError> {
        match self.try_to_hold(key, Holder { task: task.0, hold }).await {
            Err(error) if error.is_forbidden() && self.keeps_apart(key.former_index()).await? => {
                Ok(Hold::Held)
            }
            held => held,
        }
    }

    async fn try_to_hold(&self, key: &Key, new: Holder) -> Result<Hold, StoreError> {
        for turn in 0..TURNS {
            // Mostly nobody has it.
            let found = match turn {
                0 => None,
                _ => self.keys().find_one(doc! { "_id": key.id() }).await?,
            };
            let holder = found.as_ref().and_then(Holder::of);
            if holder != Some(new) {
                match self.standing(key, holder.filter(|holder| holder.task != new.task)).await? {
                    Standing::Counts(other) => return Ok(Hold::Taken(other)),
                    Standing::Changing => {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    Standing::Over => {}
                }
                if !self.take_key(key, found.as_ref(), new).await? {
                    continue;
                }
            }
            // Only now: a key is removed when its task counts by being there.
            let other = self.counting(key, new.task).await?;
            return Ok(other.map_or(Hold::Held, Hold::Taken));
        }
        Err(StoreError::Unconfirmed { reason: "too many others want the same key".to_owned() })
    }

    /// Makes a key that nobody has, or moves it if it is still as it was found. Returns whether it did.
    async fn take_key(&self, key: &Key, found: Option<&Document>, new: Holder) -> Result<bool, StoreError> {
        let Some(found) = found else {
            return match self.keys().insert_one(key_document(key, new)).await.map_err(StoreError::from) {
                Ok(_) => Ok(true),
                Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                    Ok(false)
                }
                Err(error) => Err(error),
            };
        };
        let still =
            doc! { "_id": key.id(), "task": found.get("task").cloned(), "hold": found.get("hold").cloned() };
        let update = doc! { "$set": { "task": new.task, "hold": new.hold } };
        Ok(self.keys().update_one(still, update).await?.matched_count == 1)
    }

    /// Whether this task is there, or another one that counts.
    pub(crate) async fn has_task(&self, key: &Key, task: TaskId) -> Result<bool, StoreError> {
        let own = self.tasks().find_one(doc! { "_id": task }).projection(doc! { "_id": 1 }).await?;
        Ok(own.is_some() || self.counting(key, task.0).await?.is_some())
    }

    /// A task that counts beside `except`.
    async fn counting(&self, key: &Key, except: ObjectId) -> Result<Option<TaskId>, StoreError> {
        let mut others = key.counted();
        others.insert("_id", doc! { "$ne": except });
        let found = self.tasks().find_one(others).projection(doc! { "_id": 1 }).await?;
        Ok(found.and_then(|task| task.get_object_id("_id").ok()).map(TaskId))
    }

    /// How it is with the task that the key names. A pending one goes on with this, and a mark goes away.
    async fn standing(&self, key: &Key, holder: Option<Holder>) -> Result<Standing, StoreError> {
        let Some(Holder { task, .. }) = holder else { return Ok(Standing::Over) };
        // In this order: it is noted there until it is in `tasks`.
        if let Key::Time { schedule, .. } = key {
            let fires = doc! { "_id": schedule, "firing.task": task };
            if self.schedules().find_one(fires).projection(doc! { "_id": 1 }).await?.is_some() {
                return Ok(Standing::Counts(TaskId(task)));
            }
        }
        // What this server has first, which knows of whatever counts; then whether a failover could take the end back.
        for concern in [ReadConcern::local(), ReadConcern::majority()] {
            let is_local = concern == ReadConcern::local();
            let tasks = self.tasks();
            let found = tasks.find_one(doc! { "_id": task }).projection(projection());
            let Some(found) = found.read_concern(concern).await?.map(Document::from) else { continue };
            if is_pending(&found) {
                if let Some(other) = self.counting(key, task).await? {
                    return Ok(Standing::Counts(other));
                }
                self.let_go_on(&[task]).await?;
                return Ok(Standing::Changing);
            }
            if key.counts_in(found.get("status").and_then(whole_number)) {
                return Ok(if is_local { Standing::Counts(TaskId(task)) } else { Standing::Changing });
            }
            if let Some(mark) = mark_of(&found) {
                let marked =
                    doc! { "_id": task, "status": found.get("status").cloned(), WANTS_KEY: mark.clone() };
                self.tasks().update_one(marked, doc! { "$unset": { WANTS_KEY: "" } }).await?;
                return Ok(Standing::Changing);
            }
        }
        Ok(Standing::Over)
    }
}

/// A key that names a task.
pub(super) fn key_document(key: &Key, holder: Holder) -> Document {
    doc! { "_id": key.id(), "task": holder.task, "hold": holder.hold }
}
