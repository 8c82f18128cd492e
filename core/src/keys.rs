//! Keys: what only one task may have. The `unique` of a task is one, which counts until the task has ended; a time of a schedule
//! is another, which counts as long as its task is in `tasks`.
//!
//! A key is a document of `tasks.keys`: its `_id` is the key, and it names the task that has it. No unique index over `tasks` takes
//! part, as none can be where `tasks` is divided among shards by queue and `_id`. Three rules do instead, and each of them is carried
//! by one conditional update:
//!
//! 1. **A task is there before a key names it.** It is in `tasks`, pending or ended with a mark, or it is noted in `firing` of its
//!    schedule. So a key that names a task which is not there, or has ended, is nobody's: whoever died in between, nothing has to be
//!    waited for.
//! 2. **A task comes to count only while its key names it**: from pending, or from its mark, by one update whose filter has that.
//! 3. **A key goes from a task to another one only when the first does not count and cannot come to**: the update that moves it has in
//!    its filter the task and the `hold` that were read before that was looked at, and whoever has a key name a task again, writes
//!    another `hold`.
//!
//! **A new task** is inserted pending: blocked (-4) with `gate: "key"`, which nobody lets go on, and `born`, what it is to be. Then the
//! key is made to name it. Then it is looked whether a task counts that no key names ([`Store::hold_key`]), and then one update
//! makes it what it is to be. Where another task has the key, it is removed, as long as it is pending. So a submitter that stands still for an
//! hour between any two of these holds up nobody: whoever meets a pending task that has the key does the rest for it, and a DEN
//! does it for those that nobody meets ([`Store::settle_left`]). The other way round, with the key first, a key of a task that is not
//! there would be one of a submitter that is dead, or late: what is late could only be told by time, or the whole task would have to
//! be in the key for others to insert it, which they might do again after it has ended and left.
//!
//! **A task that is tried again** gets a mark of its own (`wants_key`) while it is still ended, the key names it under this mark, and the
//! update that queues it has the mark in its filter. Whoever finds a key with an ended task that has a mark removes that first.
//!
//! **The task of a time that fires** is noted in `firing` under its id, has the key name it, and is inserted by the server where `firing`
//! still has it (`schedules/tasks.rs`).
//!
//! **Tasks that no key names** are those of earlier releases and of other programs. For these, whoever has got a key looks once more for a
//! task that counts, by an index. Releases that knew no keys had unique indexes. Those stay where they are, and while programs of such
//! a release work beside, these need them and refuse unique keys without. Without them, nothing keeps another program from making
//! an ended task live again whose key is another's by then. A user of MongoDB that may not write `tasks.keys` yet goes by such
//! an index as well, if it is there.

mod pending;

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReadConcern;

use crate::model::{QueueId, ScheduleId, Status, TaskId};
use crate::store::{Store, StoreError, with};

pub use pending::KeySweep;
pub(crate) use pending::{Settled, duplicates, is_pending, left, not_pending, pending};

/// At which gate a task is that has no key yet.
pub(crate) const GATE: &str = "key";

/// What a pending task is to be: its status, and its gate if it has one.
pub(crate) const BORN: &str = "born";

/// What an ended task has that is about to be queued again with its key.
pub(crate) const WANTS_KEY: &str = "wants_key";

/// How often it is tried to have a key name a task while others get in the way.
const TURNS: u32 = 200;

/// So long is waited between two of them, as what others have written has to get to a majority of the servers.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// `unique` of tasks of a queue, as the client has written it.
    Unique { queue: QueueId, text: String },
    /// A time of a schedule, without jitter.
    Time { schedule: ScheduleId, at: DateTime },
}

impl Key {
    pub(crate) fn unique(queue: QueueId, task: &Document) -> Option<Self> {
        let text = task.get_str("unique").ok()?.to_owned();
        Some(Self::Unique { queue, text })
    }

    /// The key of a task, if it has one. None has two: tasks of schedules have no unique key.
    pub(crate) fn of_task(task: &Document) -> Option<Self> {
        let queue = task.get_object_id("queue").ok().map(QueueId);
        if let Some(unique) = queue.and_then(|queue| Self::unique(queue, task)) {
            return Some(unique);
        }
        let schedule = ScheduleId(task.get_object_id("schedule").ok()?);
        Some(Self::Time { schedule, at: *task.get_datetime("scheduled_for").ok()? })
    }

    fn id(&self) -> Document {
        match self {
            Self::Unique { queue, text } => doc! { "queue": queue, "unique": text },
            Self::Time { schedule, at } => doc! { "schedule": schedule, "at": *at },
        }
    }

    fn schedule_of(id: &Document) -> Option<ScheduleId> {
        id.get_object_id("schedule").ok().map(ScheduleId)
    }

    /// The fields of the unique index that earlier releases had in its place.
    fn former_index(&self) -> &'static [&'static str] {
        match self {
            Self::Unique { .. } => &["queue", "unique"],
            Self::Time { .. } => &["schedule", "scheduled_for"],
        }
    }

    /// Matches the tasks that count. Those of them that do although no key names them are found so, too.
    pub(crate) fn counted(&self) -> Document {
        let counted = match self {
            Self::Unique { queue, text } => {
                doc! { "queue": queue, "unique": text, "status": { "$in": Status::LIVE.to_vec() } }
            }
            Self::Time { schedule, at } => doc! { "schedule": schedule, "scheduled_for": *at },
        };
        with(counted, not_pending())
    }

    /// Whether a task with it counts in a status, where it is not pending.
    fn counts_in(&self, status: Option<Status>) -> bool {
        match self {
            Self::Unique { .. } => status.is_some_and(|status| Status::LIVE.contains(&status)),
            Self::Time { .. } => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The key names it, and no other task counts, as long as it is pending or has its mark.
    Held,
    Taken(TaskId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    task: ObjectId,
    /// Differs each time that a key comes to name a task, save for repetitions of the same.
    hold: ObjectId,
}

impl Holder {
    fn of(key: &Document) -> Option<Self> {
        Some(Self { task: key.get_object_id("task").ok()?, hold: key.get_object_id("hold").ok()? })
    }
}

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
            let inserted = self.keys().insert_one(key_document(key, new)).await;
            return Ok(StoreError::unless_duplicate(inserted)?.is_some());
        };
        let still =
            doc! { "_id": key.id(), "task": found.get("task").cloned(), "hold": found.get("hold").cloned() };
        let update = doc! { "$set": { "task": new.task, "hold": new.hold } };
        Ok(self.keys().update_one(still, update).await?.matched_count == 1)
    }

    pub(crate) async fn has_task(&self, key: &Key, task: TaskId) -> Result<bool, StoreError> {
        let own = self.tasks().find_one(doc! { "_id": task }).projection(doc! { "_id": 1 }).await?;
        Ok(own.is_some() || self.counting(key, task.0).await?.is_some())
    }

    async fn counting(&self, key: &Key, except: ObjectId) -> Result<Option<TaskId>, StoreError> {
        let others = with(key.counted(), doc! { "_id": { "$ne": except } });
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
            if key.counts_in(Status::stored(&found)) {
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

/// What has to be read of a task to tell whether it counts.
fn projection() -> Document {
    doc! { "status": 1, "gate": 1, WANTS_KEY: 1 }
}

fn mark_of(task: &Document) -> Option<&Bson> {
    task.get(WANTS_KEY).filter(|mark| **mark != Bson::Null)
}

fn key_document(key: &Key, holder: Holder) -> Document {
    doc! { "_id": key.id(), "task": holder.task, "hold": holder.hold }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_one_key_or_none() {
        let (queue, schedule) = (ObjectId::new(), ObjectId::new());
        let at = DateTime::from_millis(1_795_163_067_344);
        let unique = Key::of_task(&doc! { "queue": queue, "unique": "k", "status": -2 });
        assert_eq!(unique, Some(Key::Unique { queue: QueueId(queue), text: "k".to_owned() }));
        let time = Key::of_task(&doc! { "queue": queue, "schedule": schedule, "scheduled_for": at });
        assert_eq!(time, Some(Key::Time { schedule: ScheduleId(schedule), at }));
        for none in
            [doc! { "queue": queue }, doc! { "queue": queue, "unique": 5 }, doc! { "schedule": schedule }]
        {
            assert_eq!(Key::of_task(&none), None, "{none}");
        }
        let (unique, time) = (unique.unwrap(), time.unwrap());
        assert_eq!(
            (Key::schedule_of(&unique.id()), Key::schedule_of(&time.id())),
            (None, Some(ScheduleId(schedule)))
        );
        let (blocked, ended) = (Some(Status::Blocked), Some(Status::Succeeded));
        assert!(unique.counts_in(blocked) && !unique.counts_in(ended) && !unique.counts_in(None));
        assert!(time.counts_in(ended) && time.counts_in(None));
    }

    #[test]
    fn what_is_pending_says_what_it_is_to_be() {
        let queued = pending(doc! { "_id": 1, "status": -2, "node": Bson::Null });
        assert_eq!(
            queued,
            doc! { "_id": 1, "status": -4, "node": Bson::Null, "gate": "key", "born": { "status": -2 } }
        );
        assert!(is_pending(&queued));
        let blocked = pending(doc! { "_id": 1, "status": -4, "gate": "new" });
        assert_eq!(blocked.get_document("born").unwrap(), &doc! { "status": -4, "gate": "new" });
        assert!(
            !is_pending(&doc! { "status": -2, "gate": "key" })
                && !is_pending(&doc! { "status": -4, "gate": "new" })
        );
    }
}
