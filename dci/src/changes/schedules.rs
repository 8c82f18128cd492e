//! Schedules.

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::model::{QueueId, ScheduleId, TaskId};
use disbatch_core::schedules::{BackfillError, Schedule, ScheduleError, Settings, Updated};
use disbatch_core::store::{Altered, StoreError};
use disbatch_core::task::SubmitError;

use super::{actor, to_the_end};
use crate::access::Who;
use crate::state::State;

/// An entry has the ids of so many tasks.
const FIRST: usize = 10;

/// What of a schedule changes by itself.
const BY_ITSELF: [&str; 10] = [
    "changed",
    "counts",
    "firing",
    "last",
    "last_success",
    "next",
    "next_for",
    "rev",
    "storage",
    "stored_for",
];

/// Makes a schedule. Its settings have been read by the caller.
pub async fn create_schedule(
    state: &State,
    who: &Who,
    settings: Settings,
    paused: bool,
) -> Result<Schedule, ScheduleError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let schedule = store.create_schedule(&settings, paused).await?;
        store.note_audit(&entry(who, Verb::ScheduleCreate, None, Some(schedule.shown()))).await;
        Ok::<Schedule, ScheduleError>(schedule)
    };
    to_the_end(state, change).await
}

/// Changes the settings of a schedule that has this revision.
pub async fn update_schedule(
    state: &State,
    who: &Who,
    (id, rev): (ScheduleId, i64),
    settings: Settings,
) -> Result<Updated, ScheduleError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let updated = store.update_schedule(id, rev, &settings).await?;
        if let Updated::Updated(altered) = &updated {
            let Altered { before, after } = (**altered).clone();
            store.note_audit(&entry(who, Verb::ScheduleUpdate, before, Some(after))).await;
        }
        Ok::<Updated, ScheduleError>(updated)
    };
    to_the_end(state, change).await
}

/// Has a schedule make no tasks by itself, or go on with it. Returns whether there is such a schedule.
pub async fn pause_schedule(
    state: &State,
    who: &Who,
    id: ScheduleId,
    paused: bool,
) -> Result<bool, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let (altered, what) = if paused {
            (store.pause_schedule(id).await?, Verb::SchedulePause)
        } else {
            (store.resume_schedule(id).await?, Verb::ScheduleResume)
        };
        let is_there = altered.is_some();
        if let Some(Altered { before, after }) = altered.filter(Altered::is_different) {
            store.note_audit(&entry(who, what, before, Some(after))).await;
        }
        Ok::<bool, StoreError>(is_there)
    };
    to_the_end(state, change).await
}

/// Deletes a schedule, leaving its tasks. Returns whether there was such a schedule.
pub async fn delete_schedule(state: &State, who: &Who, id: ScheduleId) -> Result<bool, StoreError> {
    let (store, who) = (state.store.clone(), actor(who));
    let change = async move {
        let Some(gone) = store.delete_schedule(id).await? else { return Ok::<bool, StoreError>(false) };
        store.note_audit(&entry(who, Verb::ScheduleDelete, Some(gone), None)).await;
        Ok(true)
    };
    to_the_end(state, change).await
}

/// Has a schedule make a task now. `None`: there is no such schedule.
pub async fn run_schedule(
    state: &State,
    who: &Who,
    schedule: &Schedule,
) -> Result<Option<TaskId>, SubmitError> {
    let (store, owner, who) = (state.store.clone(), who.name.clone(), actor(who));
    let (id, shown) = (schedule.id, schedule.shown());
    let change = async move {
        let task = store.run_schedule(id, owner.as_deref()).await?;
        if let Some(task) = task {
            store.note_audit(&with_tasks(who, Verb::ScheduleRun, &shown, &[task])).await;
        }
        Ok::<Option<TaskId>, SubmitError>(task)
    };
    to_the_end(state, change).await
}

/// Has a schedule make the tasks of a stretch of time that are missing, at most `limit`. `None`: there is no such schedule.
pub async fn backfill_schedule(
    state: &State,
    who: &Who,
    schedule: &Schedule,
    (from, to): (DateTime, DateTime),
    limit: usize,
) -> Result<Option<Vec<TaskId>>, BackfillError> {
    let (store, who) = (state.store.clone(), actor(who));
    let (id, shown) = (schedule.id, schedule.shown());
    let change = async move {
        let tasks = store.backfill_schedule(id, (from, to), limit).await?;
        if let Some(tasks) = tasks.as_ref().filter(|tasks| !tasks.is_empty()) {
            let mut entry = with_tasks(who, Verb::ScheduleBackfill, &shown, tasks);
            entry.more.extend(doc! { "since": from, "until": to });
            store.note_audit(&entry).await;
        }
        Ok::<Option<Vec<TaskId>>, BackfillError>(tasks)
    };
    to_the_end(state, change).await
}

fn entry(who: Actor, what: Verb, before: Option<Document>, after: Option<Document>) -> AuditEntry {
    let [before, after] = [before, after].map(|document| document.map(as_set));
    let of = |document: &Document| Object::of_document(ObjectKind::Schedule, document, "name");
    let last = after.as_ref().or(before.as_ref());
    let object = last.map_or(Object::new(ObjectKind::Schedule), of);
    let queue = last.and_then(queue_of);
    AuditEntry { queue, before, after, ..AuditEntry::new(who, what, object) }
}

fn with_tasks(who: Actor, what: Verb, schedule: &Document, tasks: &[TaskId]) -> AuditEntry {
    let object = Object::of_document(ObjectKind::Schedule, schedule, "name");
    let first: Vec<ObjectId> = tasks.iter().take(FIRST).map(|id| id.0).collect();
    let count = i64::try_from(tasks.len()).unwrap_or(i64::MAX);
    let more = doc! { "count": count, "tasks": first };
    AuditEntry { queue: queue_of(schedule), more, ..AuditEntry::new(who, what, object) }
}

fn queue_of(schedule: &Document) -> Option<QueueId> {
    schedule.get_object_id("queue").ok().map(QueueId)
}

/// What somebody has set of a schedule.
fn as_set(mut schedule: Document) -> Document {
    for name in BY_ITSELF {
        schedule.remove(name);
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(name: &str, rev: i64) -> Document {
        doc! {
            "_id": ObjectId::from_bytes([1; 12]), "name": name, "queue": ObjectId::from_bytes([2; 12]), "rev": rev,
            "next": DateTime::from_millis(rev), "counts": { "fired": rev },
        }
    }

    #[test]
    fn an_entry_has_what_was_set_and_not_what_goes_on_by_itself() {
        let who = || Actor::refused("10.0.0.1");
        let changed = entry(who(), Verb::ScheduleUpdate, Some(schedule("old", 1)), Some(schedule("new", 2)));
        assert_eq!(changed.object.name.as_deref(), Some("new"));
        assert_eq!(changed.object.id, Some(ObjectId::from_bytes([1; 12])));
        assert_eq!(changed.queue, Some(QueueId(ObjectId::from_bytes([2; 12]))));
        let (before, after) = (changed.before.unwrap(), changed.after.unwrap());
        let names: Vec<&str> = after.keys().map(String::as_str).collect();
        assert_eq!((names, before.get_str("name").unwrap()), (vec!["_id", "name", "queue"], "old"));
        let gone = entry(who(), Verb::ScheduleDelete, Some(schedule("old", 1)), None);
        assert_eq!(gone.object.name.as_deref(), Some("old"));
    }

    #[test]
    fn tasks_are_told_by_their_number_and_the_first_of_them() {
        let tasks: Vec<TaskId> = (0..25).map(|_| TaskId(ObjectId::new())).collect();
        let who = Actor::refused("10.0.0.1");
        let entry = with_tasks(who, Verb::ScheduleBackfill, &schedule("nightly", 1), &tasks);
        let first: Vec<ObjectId> = tasks.iter().take(10).map(|id| id.0).collect();
        assert_eq!(entry.more, doc! { "count": 25_i64, "tasks": first });
    }
}
