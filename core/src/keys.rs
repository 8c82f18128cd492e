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
//! still has it (`schedules/make.rs`).
//!
//! **Tasks that no key names** are those of earlier releases and of other programs. For these, whoever has got a key looks once more for a
//! task that counts, by an index. Releases that knew no keys had unique indexes. Those stay where they are, and while programs of such
//! a release work beside, these need them and refuse unique keys without. Without them, nothing keeps another program from making
//! an ended task live again whose key is another's by then. A user of MongoDB that may not write `tasks.keys` yet goes by such
//! an index as well, if it is there.

mod hold;
mod pending;
mod sweep;

use bson::{Bson, DateTime, Document, doc};
use mongodb::Collection;

pub(crate) use hold::Hold;
pub(crate) use pending::{Settled, duplicates, is_pending, not_pending, pending};
pub use sweep::KeySweep;
pub(crate) use sweep::left;

use crate::model::{QueueId, ScheduleId, Status};
use crate::store::Store;
use crate::store::collections::KEYS;

/// At which gate a task is that has no key yet.
pub(crate) const GATE: &str = "key";

/// What a pending task is to be: its status, and its gate if it has one.
pub(crate) const BORN: &str = "born";

/// What an ended task has that is about to be queued again with its key.
pub(crate) const WANTS_KEY: &str = "wants_key";

/// What only one task may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// `unique` of tasks of a queue.
    Unique {
        queue: QueueId,
        /// As the client has written it.
        text: String,
    },
    /// A time of a schedule.
    Time {
        schedule: ScheduleId,
        /// The time, without jitter.
        at: DateTime,
    },
}

impl Key {
    /// The unique key of a task, if it has one.
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

    /// What its document has as `_id`.
    fn id(&self) -> Document {
        match self {
            Self::Unique { queue, text } => doc! { "queue": queue, "unique": text },
            Self::Time { schedule, at } => doc! { "schedule": schedule, "at": *at },
        }
    }

    /// The schedule that its document is about, if it is a time.
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
    fn counted(&self) -> Document {
        let mut counted = match self {
            Self::Unique { queue, text } => {
                doc! { "queue": queue, "unique": text, "status": { "$in": Status::LIVE.to_vec() } }
            }
            Self::Time { schedule, at } => doc! { "schedule": schedule, "scheduled_for": *at },
        };
        counted.extend(not_pending());
        counted
    }

    /// Whether a task with it counts in a status, where it is not pending.
    fn counts_in(&self, status: Option<i64>) -> bool {
        match self {
            Self::Unique { .. } => {
                status.is_some_and(|status| Status::LIVE.map(Status::code).contains(&status))
            }
            Self::Time { .. } => true,
        }
    }
}

/// Matches the tasks of a queue with a unique key that count.
pub(crate) fn with_unique(queue: QueueId, text: &str) -> Document {
    Key::Unique { queue, text: text.to_owned() }.counted()
}

impl Store {
    fn keys(&self) -> Collection<Document> {
        self.database().collection(KEYS.name)
    }
}

/// What has to be read of a task to tell whether it counts.
fn projection() -> Document {
    doc! { "status": 1, "gate": 1, WANTS_KEY: 1 }
}

fn mark_of(task: &Document) -> Option<&Bson> {
    task.get(WANTS_KEY).filter(|mark| **mark != Bson::Null)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

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
        assert!(unique.counts_in(Some(-4)) && !unique.counts_in(Some(1)) && !unique.counts_in(None));
        assert!(time.counts_in(Some(1)) && time.counts_in(None));
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
