//! Pending tasks: new ones whose keys do not name them yet. Those of submitters that have died are left behind, and so are keys that nobody
//! has: both are looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::error::ErrorKind;
use mongodb::options::ReadConcern;

use super::{BORN, GATE, Hold, Holder, Key, key_document, mark_of, projection};
use crate::model::{ScheduleId, Status, TaskId};
use crate::store::collections::KEYS;
use crate::store::{Store, StoreError, collect, documents_in, integer, put, with};

/// What was submitted a moment ago is left to whoever submits it.
const YOUNG: Duration = Duration::from_secs(10);

const SETTLED_AT_ONCE: i64 = 100;

/// So many keys are looked at together.
const LOOKED_AT: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It is what it was to be, or more has become of it since.
    GoesOn,
    /// It is removed: this task has its key.
    Refused(TaskId),
}

/// A new task as it is until its key names it.
pub(crate) fn pending(mut task: Document) -> Document {
    let mut born = Document::new();
    for (field, value) in [("status", Bson::from(Status::Blocked)), ("gate", Bson::from(GATE))] {
        put(&mut born, field, task.insert(field, value));
    }
    task.insert(BORN, born);
    task
}

pub(crate) fn is_pending(task: &Document) -> bool {
    Status::stored(task) == Some(Status::Blocked) && task.get_str("gate").ok() == Some(GATE)
}

fn all_pending() -> Document {
    doc! { "status": Status::Blocked, "gate": GATE }
}

pub(crate) fn not_pending() -> Document {
    doc! { "$nor": [all_pending()] }
}

/// How far a sweeper has come: the next round goes on from there.
#[derive(Debug, Default)]
pub struct KeySweep {
    /// The last key that was looked at.
    after: Option<Bson>,
}

impl KeySweep {
    pub fn is_through(&self) -> bool {
        self.after.is_none()
    }
}

/// Matches pending tasks that are older than a moment at `now`.
pub(crate) fn left(now: DateTime) -> Document {
    let before = now.timestamp_millis() / 1_000 - i64::try_from(YOUNG.as_secs()).unwrap_or_default();
    let first = ObjectId::from_parts(u32::try_from(before).unwrap_or_default(), [0; 5], [0; 3]);
    with(all_pending(), doc! { "_id": { "$lt": first } })
}

impl Store {
    /// Has a pending task go on if it has the key, and removes it if another one has.
    ///
    /// # Errors
    /// The database cannot be reached: a DEN settles it then. Or this user has no right to keys: the task is removed.
    pub(crate) async fn settle_pending(&self, task: TaskId, key: &Key) -> Result<Settled, StoreError> {
        // Another hold each time: two who settle the same must not bring back one that somebody else has read.
        let other = match self.hold_key(key, task, ObjectId::new()).await {
            Ok(Hold::Held) => None,
            Ok(Hold::Taken(other)) => Some(other),
            Err(error) => {
                if error.is_forbidden() {
                    self.remove_pending(&[task.0]).await?;
                }
                return Err(error);
            }
        };
        let is_done = match other {
            None => self.let_go_on(&[task.0]).await? == 1,
            Some(_) => self.remove_pending(&[task.0]).await? == 1,
        };
        let is_there = if is_done {
            other.is_none()
        } else {
            // Somebody else was faster, whatever they found, and may have counted it.
            self.doubt_counters();
            self.find_task_fields(task, doc! { "_id": 1 }).await?.is_some()
        };
        match other {
            _ if is_there => Ok(Settled::GoesOn),
            Some(other) => Ok(Settled::Refused(other)),
            None => {
                Err(StoreError::Unconfirmed { reason: "a new task was removed by somebody else".to_owned() })
            }
        }
    }

    /// Makes those of the pending tasks what they are to be whose keys name them. Returns how many there were.
    pub(crate) async fn let_go_on(&self, tasks: &[ObjectId]) -> Result<u64, StoreError> {
        let born = |field: &str, otherwise: Bson| doc! { "$ifNull": [format!("${BORN}.{field}"), otherwise] };
        let update = vec![doc! { "$set": {
            "status": born("status", Status::Queued.into()), "gate": born("gate", "$$REMOVE".into()), BORN: "$$REMOVE",
        } }];
        Ok(self.tasks().update_many(among(tasks), update).await?.matched_count)
    }

    /// Removes those of these tasks that are pending. Returns how many there were.
    pub(crate) async fn remove_pending(&self, tasks: &[ObjectId]) -> Result<u64, StoreError> {
        let removed = self.tasks().delete_many(among(tasks)).await?.deleted_count;
        if removed > 0 {
            // Others may wait for one by now: it was to be seen.
            let gone: Vec<Bson> = tasks.iter().copied().map(Bson::from).collect();
            self.ask_dependents_again(&gone).await?;
        }
        Ok(removed)
    }

    /// Has keys that nobody has name pending tasks, all at once. Returns the places of those that others have, or have had.
    /// Whether tasks count that no key names is not looked at.
    ///
    /// # Errors
    /// The database cannot be reached, or this user has no right to keys and nothing else keeps their tasks apart.
    pub(crate) async fn take_free_keys(&self, new: &[(Key, TaskId)]) -> Result<BTreeSet<usize>, StoreError> {
        let Some((first, _)) = new.first() else { return Ok(BTreeSet::new()) };
        let documents =
            new.iter().map(|(key, task)| key_document(key, Holder { task: task.0, hold: task.0 }));
        match duplicates(self.keys().insert_many(documents).ordered(false).await) {
            Err(error) if error.is_forbidden() && self.keeps_apart(first.former_index()).await? => {
                Ok(BTreeSet::new())
            }
            taken => taken,
        }
    }

    /// Settles pending tasks that their submitters have left. Any number of processes may do so at once. Returns how many, and
    /// whether there may be more. One that cannot be settled keeps no other from it.
    #[operation]
    pub async fn settle_left(&self) -> Result<(u64, bool), StoreError> {
        let fields = doc! { "queue": 1, "unique": 1, "schedule": 1, "scheduled_for": 1 };
        let found =
            collect(self.tasks().find(left(self.now())).projection(fields).limit(SETTLED_AT_ONCE)).await?;
        let mut settled = 0;
        for task in &found {
            let (Ok(id), Some(key)) = (task.get_object_id("_id"), Key::of_task(task)) else { continue };
            match self.settle_pending(TaskId(id), &key).await {
                Ok(Settled::GoesOn) => {
                    tracing::info!(task = %id, "a task goes on that its submitter has left without its key");
                    settled += 1;
                }
                Ok(Settled::Refused(other)) => {
                    tracing::info!(task = %id, %other, "a task is removed that was left without its key, which another has");
                    settled += 1;
                }
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    tracing::warn!(task = %id, %error, "cannot settle a task that waits for its key")
                }
            }
        }
        if settled > 0 {
            // Whether their submitters have counted them nobody knows.
            self.doubt_counters();
        }
        Ok((settled, settled > 0 && i64::try_from(found.len()).is_ok_and(|found| found == SETTLED_AT_ONCE)))
    }

    /// Removes keys that nobody has: looks at some of them, and notes in `sweep` how far it has come. Returns how many.
    #[operation]
    pub async fn sweep_keys(&self, sweep: &mut KeySweep) -> Result<u64, StoreError> {
        let next = sweep.after.take().map_or_else(Document::new, |after| doc! { "_id": { "$gt": after } });
        let keys = collect(self.keys().find(next).sort(doc! { "_id": 1 }).limit(integer(LOOKED_AT))).await?;
        let last = keys.last().and_then(|key| key.get("_id").cloned());
        let named: Vec<(&Document, Holder)> =
            keys.iter().filter_map(|key| Some((key.get_document("_id").ok()?, Holder::of(key)?))).collect();
        // In this order: what fires is noted there until it is in `tasks`.
        let firing =
            self.firing_of(named.iter().filter_map(|(id, _)| Key::schedule_of(id)).collect()).await?;
        let tasks = self.tasks_of(named.iter().map(|(_, holder)| holder.task).collect()).await?;
        let is_stale = |(id, holder): &(&Document, Holder)| {
            let task = tasks.get(&holder.task);
            match Key::schedule_of(id) {
                // One that is there counts by itself.
                Some(_) => !firing.contains(&holder.task) && !task.is_some_and(is_pending),
                None => task.is_none_or(|task| !is_live(task) && mark_of(task).is_none()),
            }
        };
        let stale = named.iter().filter(|key| is_stale(key));
        // Whoever has taken one since then has another hold.
        let same = |(id, holder): &(&Document, Holder)| {
            doc! { "_id": (*id).clone(), "task": holder.task, "hold": holder.hold }
        };
        let stale = stale.map(same).collect();
        sweep.after = last.filter(|_| keys.len() == LOOKED_AT);
        self.delete_each(KEYS.name, stale).await
    }

    /// The tasks that these schedules are to make.
    async fn firing_of(&self, schedules: BTreeSet<ScheduleId>) -> Result<BTreeSet<ObjectId>, StoreError> {
        if schedules.is_empty() {
            return Ok(BTreeSet::new());
        }
        let filter = doc! { "_id": { "$in": schedules.iter().map(|id| id.0).collect::<Vec<_>>() }, "firing.0": { "$exists": true } };
        let found = collect(self.schedules().find(filter).projection(doc! { "firing.task": 1 })).await?;
        let entries = found.iter().flat_map(|schedule| documents_in(schedule, "firing"));
        Ok(entries.filter_map(|entry| entry.get_object_id("task").ok()).collect())
    }

    /// Those of the tasks that are there, as a majority has them.
    async fn tasks_of(&self, ids: Vec<ObjectId>) -> Result<BTreeMap<ObjectId, Document>, StoreError> {
        let tasks = self.tasks();
        let found = tasks.find(doc! { "_id": { "$in": ids } }).projection(projection());
        let found = collect(found.read_concern(ReadConcern::majority())).await?;
        Ok(found.into_iter().filter_map(|task| Some((task.get_object_id("_id").ok()?, task))).collect())
    }
}

fn among(tasks: &[ObjectId]) -> Document {
    with(doc! { "_id": { "$in": tasks } }, all_pending())
}

/// Which of several documents that were to be inserted were there already, if that is all that was wrong.
pub(crate) fn duplicates<T>(inserted: mongodb::error::Result<T>) -> Result<BTreeSet<usize>, StoreError> {
    let Err(error) = inserted else { return Ok(BTreeSet::new()) };
    if let ErrorKind::InsertMany(many) = error.kind.as_ref()
        && many.write_concern_error.is_none()
        && let Some(failures) = &many.write_errors
        && failures.iter().all(|failure| failure.code == 11_000)
    {
        return Ok(failures.iter().map(|failure| failure.index).collect());
    }
    Err(error.into())
}

fn is_live(task: &Document) -> bool {
    Status::stored(task).is_some_and(|status| Status::LIVE.contains(&status))
}
