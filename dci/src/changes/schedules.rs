//! Schedules.

use bson::{DateTime, Document, doc};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::model::{ScheduleId, TaskId};
use disbatch_core::schedules::{BackfillError, Schedule, ScheduleError, Settings, Updated};
use disbatch_core::store::{Altered, Store, StoreError};
use disbatch_core::task::SubmitError;

use super::{actor, new_tasks, noted, queue_of};
use crate::access::Who;
use crate::state::State;

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

pub async fn create_schedule(
    state: &State,
    who: &Who,
    settings: Settings,
    paused: bool,
) -> Result<Schedule, ScheduleError> {
    let create = move |store: Store, who: Actor| async move {
        let schedule = store.create_schedule(&settings, paused).await?;
        let entry = entry(who, Verb::ScheduleCreate, None, Some(schedule.shown()));
        Ok((schedule, Some(entry)))
    };
    noted(state, actor(who), create).await
}

/// Changes the settings of a schedule that has this revision.
pub async fn update_schedule(
    state: &State,
    who: &Who,
    (id, rev): (ScheduleId, i64),
    settings: Settings,
) -> Result<Updated, ScheduleError> {
    let update = move |store: Store, who: Actor| async move {
        let updated = store.update_schedule(id, rev, &settings).await?;
        let entry = match &updated {
            Updated::Updated(altered) => Some(altered_entry(who, Verb::ScheduleUpdate, (**altered).clone())),
            Updated::Changed { .. } | Updated::NoSuchSchedule => None,
        };
        Ok((updated, entry))
    };
    noted(state, actor(who), update).await
}

/// Has a schedule make no tasks by itself, or go on with it. Returns whether there is such a schedule.
pub async fn pause_schedule(
    state: &State,
    who: &Who,
    id: ScheduleId,
    paused: bool,
) -> Result<bool, StoreError> {
    let pause = move |store: Store, who: Actor| async move {
        let (altered, what) = if paused {
            (store.pause_schedule(id).await?, Verb::SchedulePause)
        } else {
            (store.resume_schedule(id).await?, Verb::ScheduleResume)
        };
        let is_there = altered.is_some();
        let altered = altered.filter(Altered::is_different);
        Ok((is_there, altered.map(|altered| altered_entry(who, what, altered))))
    };
    noted(state, actor(who), pause).await
}

/// Deletes a schedule, leaving its tasks. Returns whether there was such a schedule.
pub async fn delete_schedule(state: &State, who: &Who, id: ScheduleId) -> Result<bool, StoreError> {
    let delete = move |store: Store, who: Actor| async move {
        let gone = store.delete_schedule(id).await?;
        Ok((gone.is_some(), gone.map(|gone| entry(who, Verb::ScheduleDelete, Some(gone), None))))
    };
    noted(state, actor(who), delete).await
}

/// Has a schedule make a task now. `None`: there is no such schedule.
pub async fn run_schedule(
    state: &State,
    who: &Who,
    schedule: &Schedule,
) -> Result<Option<TaskId>, SubmitError> {
    let (owner, id, shown) = (who.name.clone(), schedule.id, schedule.shown());
    let run = move |store: Store, who: Actor| async move {
        let task = store.run_schedule(id, owner.as_deref()).await?;
        Ok((task, task.map(|task| with_tasks(who, Verb::ScheduleRun, &shown, &[task]))))
    };
    noted(state, actor(who), run).await
}

/// Has a schedule make the tasks of a stretch of time that are missing, at most `limit`. `None`: there is no such schedule.
pub async fn backfill_schedule(
    state: &State,
    who: &Who,
    schedule: &Schedule,
    (from, to): (DateTime, DateTime),
    limit: usize,
) -> Result<Option<Vec<TaskId>>, BackfillError> {
    let (id, shown) = (schedule.id, schedule.shown());
    let backfill = move |store: Store, who: Actor| async move {
        let tasks = store.backfill_schedule(id, (from, to), limit).await?;
        let entry = tasks.as_ref().filter(|tasks| !tasks.is_empty()).map(|tasks| {
            let mut entry = with_tasks(who, Verb::ScheduleBackfill, &shown, tasks);
            entry.more.extend(doc! { "since": from, "until": to });
            entry
        });
        Ok((tasks, entry))
    };
    noted(state, actor(who), backfill).await
}

fn altered_entry(who: Actor, what: Verb, altered: Altered) -> AuditEntry {
    entry(who, what, altered.before, Some(altered.after))
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
    AuditEntry { queue: queue_of(schedule), more: new_tasks(tasks), ..AuditEntry::new(who, what, object) }
}

fn as_set(mut schedule: Document) -> Document {
    for name in BY_ITSELF {
        schedule.remove(name);
    }
    schedule
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use disbatch_core::model::QueueId;

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
