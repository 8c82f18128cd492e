//! The tasks of a schedule. That of a time that has fired is made once, however many make it and however late. And a schedule
//! is told how its tasks have ended: it settles them.
//!
//! A task of a schedule is `unsettled` from its birth, and again when it is retried, until its end has been told. Only then it
//! may leave the collection `tasks`. What is told is the same however often it is told, so a process may die at any point,
//! and any number may settle at once. The ends that count are those that a majority of the replica set has.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_metrics::labels::Source;
use disbatch_operation::operation;

use super::document::understood;
use super::{Firing, ForRun, LastSuccess, Overlap, Schedule, ScheduleId};
use crate::admission::Admitted;
use crate::gates::{LockMode, LockRequest};
use crate::keys::{Hold, Key};
use crate::model::{Status, Task, TaskId, date_time};
use crate::store::{Store, StoreError, as_majority, collect_ids, put};
use crate::task::{CancelRequest, STORAGE, SubmitError, TaskOptions};

/// What tasks of a schedule have that people have asked for: no time of the schedule cancels them.
pub(super) const ASKED_FOR: &str = "asked_for";

/// So many tasks are settled at once.
const AT_ONCE: i64 = 100;

/// So many rounds are done at once: more is left for the next call, so that schedules can fire in between.
const ROUNDS: usize = 2;

impl Store {
    /// Makes the task of a time that has fired, and removes it from those that are to be made. Whatever of it was done
    /// before, however long ago, is not done again.
    #[operation(schedule = %schedule.id, task = %firing.task)]
    pub async fn complete_firing(&self, schedule: &Schedule, firing: Firing) -> Result<(), StoreError> {
        if schedule.settings.overlap == Overlap::Cancel {
            self.cancel_earlier(schedule, firing).await?;
        }
        let mut update = without(firing.task);
        match self.insert_fired(schedule, firing).await {
            Ok(()) => {}
            Err(SubmitError::Store(error)) if error.is_transient() || error.is_forbidden() => {
                return Err(error);
            }
            Err(error) => {
                tracing::error!(
                    schedule = %schedule.settings.name, time = %firing.time, %error, "the task of a schedule cannot be made"
                );
                update.push(in_vain(firing.task));
            }
        }
        let with_it = doc! { "_id": schedule.id, "firing.task": firing.task };
        self.schedules().update_one(with_it, update).await?;
        Ok(())
    }

    /// Inserts a task if `firing` still has it, which the server looks at in the same operation. If there is a task for
    /// this time already, nothing happens: the time is a key ([`crate::keys`]).
    async fn insert_fired(&self, schedule: &Schedule, firing: Firing) -> Result<(), SubmitError> {
        let is_alone = matches!(schedule.settings.overlap, Overlap::Queue | Overlap::Cancel);
        let options = options_of(schedule, is_alone, None);
        let admitted = self.admit_unasked(schedule.settings.queue, &options).await?;
        let task = self.task_of(schedule, firing, &options, &admitted).await?;
        let key = Key::Time { schedule: schedule.id, at: firing.time };
        if let Hold::Taken(_) = self.hold_key(&key, firing.task, firing.task.0).await? {
            return Ok(());
        }
        let status = Status::stored(&task);
        let is_to_be_made = doc! { "_id": schedule.id, "firing.task": firing.task };
        if self.insert_because(&self.schedules(), is_to_be_made, task).await? {
            self.count_made(schedule, status, &[firing.task]).await;
        } else if !self.has_task(&key, firing.task).await? {
            // The index of an earlier release counts it. It goes away, as the time is this one's, which is made later.
            let reason = "a pending task is for the same time".to_owned();
            return Err(StoreError::Unconfirmed { reason }.into());
        }
        Ok(())
    }

    pub(super) async fn count_made(&self, schedule: &Schedule, status: Option<Status>, tasks: &[TaskId]) {
        self.submitted(schedule.settings.queue, status, tasks.len() as u64, Source::Schedule);
        if status == Some(Status::Blocked) {
            self.link_at_once(tasks).await;
        }
    }

    pub(super) async fn task_of(
        &self,
        schedule: &Schedule,
        firing: Firing,
        options: &TaskOptions,
        admitted: &Admitted,
    ) -> Result<Document, SubmitError> {
        let settings = &schedule.settings;
        let params = settings.params.clone();
        let mut task = self.new_task(settings.queue, firing.task, params, options, admitted).await?;
        task.extend(doc! { "schedule": schedule.id, "scheduled_for": firing.time, "unsettled": true });
        Ok(task)
    }

    /// Cancels the tasks of earlier times. Tasks of later ones are none of this one's business, however late it is made, and
    /// those that people have asked for are none either.
    async fn cancel_earlier(&self, schedule: &Schedule, firing: Firing) -> Result<(), StoreError> {
        let earlier = doc! {
            "schedule": schedule.id, "status": { "$in": Status::LIVE.to_vec() },
            "scheduled_for": { "$lt": firing.time }, ASKED_FOR: { "$ne": true },
        };
        let found = collect_ids(self.tasks().find(earlier).projection(doc! { "_id": 1 })).await?;
        let request = CancelRequest {
            by: format!("the schedule {}", schedule.settings.name),
            reason: Some("its next time has come".to_owned()),
        };
        for id in found {
            self.cancel_task(TaskId(id), &request).await?;
        }
        Ok(())
    }
}

/// The options of a task of a schedule. `is_alone`: it waits until other tasks of the schedule that are to be alone have
/// ended. `owner`: who wants it, if it is not the schedule's time that has come.
pub(super) fn options_of(schedule: &Schedule, is_alone: bool, owner: Option<&str>) -> TaskOptions {
    let settings = &schedule.settings;
    let mut options = settings.options.clone();
    options.tenant.clone_from(&settings.tenant);
    options.owner = owner.map(str::to_owned).or_else(|| settings.owner.clone());
    if is_alone {
        options.locks.push(LockRequest::internal(lock_of(schedule.id), LockMode::Exclusive));
        options.locks.sort_by(|a, b| a.name().cmp(b.name()));
        options.locks.dedup_by(|later, first| later.name() == first.name());
    }
    options
}

/// The lock that tasks of a schedule hold which are to be alone.
fn lock_of(schedule: ScheduleId) -> String {
    format!("schedule:{schedule}")
}

/// A pipeline that removes an entry of `firing`.
fn without(task: TaskId) -> Vec<Document> {
    let others = doc! { "$filter": {
        "input": { "$ifNull": ["$firing", []] }, "cond": { "$ne": ["$$this.task", task] },
    } };
    let since = doc! { "$cond": [{ "$eq": ["$firing", []] }, "$$REMOVE", "$firing_at"] };
    vec![doc! { "$set": { "firing": others } }, doc! { "$set": { "firing_at": since } }]
}

/// A stage that notes that a task which has fired cannot be made.
fn in_vain(task: TaskId) -> Document {
    let is_last = doc! { "$eq": ["$last.task", task] };
    doc! { "$set": {
        "last.outcome": { "$cond": [is_last, "refused", "$last.outcome"] },
        "counts.fired": { "$subtract": ["$counts.fired", 1] },
        "counts.skipped": { "$add": ["$counts.skipped", 1] },
    } }
}

#[derive(Debug, Clone, PartialEq)]
struct End {
    task: TaskId,
    status: Status,
    /// When the task changed last, as it is stored.
    mtime: Bson,
    schedule: ScheduleId,
    time: DateTime,
    success: Option<LastSuccess>,
    storage: Option<Bson>,
}

/// Finds tasks that a schedule has to be told of, by one range of an index or two; and such in statuses that nobody knows,
/// which are left alone.
pub(crate) fn may_be_unsettled() -> Document {
    doc! { "unsettled": true, "status": { "$nin": Status::LIVE.to_vec() } }
}

fn unsettled() -> Document {
    doc! { "$or": [
        { "unsettled": true, "status": { "$in": [-6, -5, -3] } },
        { "unsettled": true, "status": { "$gte": 1 } },
    ] }
}

impl Store {
    /// Tells schedules of tasks that have ended. Returns how many tasks these were, and whether there may be more.
    ///
    /// # Errors
    /// The database cannot be reached, or this user has no right to schedules. What was done by then is done.
    #[operation]
    pub async fn settle_scheduled(&self) -> Result<(u64, bool), StoreError> {
        let mut all = 0;
        for _ in 0..ROUNDS {
            let settled = self.settle(unsettled(), AT_ONCE).await?;
            all += settled;
            if settled == 0 {
                return Ok((all, false));
            }
        }
        Ok((all, true))
    }

    /// Tells schedules of those of `ids` that have ended, so that they may leave the collection.
    pub(crate) async fn settle_before_leaving(&self, ids: &[ObjectId]) -> Result<(), StoreError> {
        let these = doc! { "_id": { "$in": ids }, "unsettled": true };
        self.settle(doc! { "$and": [these, crate::task::archive::ended()] }, 0).await?;
        Ok(())
    }

    /// What a run of `task` is to know of its schedule: what the runs before it have left, also where nobody has told the
    /// schedule yet. `None`: it has no schedule, or that is gone.
    #[operation(task = %task.id)]
    pub async fn schedule_for_run(&self, task: &Task) -> Result<Option<ForRun>, StoreError> {
        let Some(id) = task.rest.get("schedule").and_then(Bson::as_object_id) else { return Ok(None) };
        // In this order: an end that is told in between is there twice, which does no harm.
        let of_schedule = doc! { "schedule": id, "$and": [unsettled()] };
        let mut ends = self.ends(of_schedule, 0).await?;
        let only = doc! { "params": 0, "firing": 0 };
        let Some(found) = self.schedules().find_one(doc! { "_id": id }).projection(only).await? else {
            return Ok(None);
        };
        let mut schedule = understood(found.into())?;
        ends.sort_by_key(|end| end.time);
        for end in ends {
            take(&mut schedule, end);
        }
        Ok(Some(ForRun {
            id,
            name: schedule.settings.name,
            storage: schedule.storage,
            last_success_start: schedule.last_success.and_then(|success| success.start),
            last_success_finish: schedule.last_success.map(|success| success.finish),
        }))
    }

    async fn settle(&self, filter: Document, limit: i64) -> Result<u64, StoreError> {
        let ends = self.ends(filter, limit).await?;
        let mut settled = 0;
        for end in ends {
            let update = self.schedules().update_one(doc! { "_id": end.schedule }, told(&end)).await;
            if let Err(error) = update.map_err(StoreError::from) {
                // The schedule has no room for what the run has saved, or is odd: the others are told all the same.
                if !error.is_about_one() {
                    return Err(error);
                }
                self.set_aside(end.task, &format!("its schedule cannot be told of its end: {error}")).await;
                continue;
            }
            // If it was retried meanwhile, its next end is to be told, too.
            let still = doc! {
                "_id": end.task, "unsettled": true, "status": end.status, "mtime": end.mtime.clone(),
            };
            let update = doc! { "$unset": { "unsettled": "" } };
            settled += self.update_found(still, update).await?;
        }
        Ok(settled)
    }

    async fn ends(&self, filter: Document, limit: i64) -> Result<Vec<End>, StoreError> {
        let only = doc! {
            "status": 1, "mtime": 1, "started": 1, "schedule": 1, "scheduled_for": 1, STORAGE: 1,
        };
        let found = as_majority(&self.tasks(), self.without_left_alone(filter), only, limit).await?;
        let mut ends = Vec::new();
        for task in found {
            match End::of(&task) {
                Some(end) => ends.push(end),
                // Nobody has to be told of it.
                None => {
                    let this = doc! { "_id": task.get("_id").cloned(), "unsettled": true };
                    self.update_found(this, doc! { "$unset": { "unsettled": "" } }).await?;
                }
            }
        }
        Ok(ends)
    }
}

impl End {
    fn of(task: &Document) -> Option<Self> {
        let time = |name: &str| task.get(name).and_then(date_time);
        let status = Status::stored(task)?;
        let success = |finish| LastSuccess { start: time("started"), finish };
        Some(Self {
            task: TaskId(task.get_object_id("_id").ok()?),
            status,
            mtime: task.get("mtime").cloned().unwrap_or(Bson::Null),
            schedule: ScheduleId(task.get_object_id("schedule").ok()?),
            time: time("scheduled_for")?,
            success: time("mtime").filter(|_| status == Status::Succeeded).map(success),
            storage: task.get(STORAGE).cloned(),
        })
    }
}

/// A pipeline that tells a schedule of an end.
fn told(end: &End) -> Vec<Document> {
    let is_last = doc! { "$eq": ["$last.task", end.task] };
    let outcome = doc! { "$mergeObjects": ["$last", { "outcome": end.status.word() }] };
    let mut set = doc! { "last": { "$cond": [is_last, outcome, { "$ifNull": ["$last", "$$REMOVE"] }] } };
    if let Some(LastSuccess { start, finish }) = end.success {
        let is_newer = doc! { "$lt": ["$last_success.finish", finish] };
        let mut success = doc! { "finish": finish };
        put(&mut success, "start", start);
        // What is missing comes before every date.
        set.insert("last_success", doc! { "$cond": [is_newer, { "$literal": success }, "$last_success"] });
    }
    if let Some(storage) = &end.storage {
        let is_newer = doc! { "$lte": ["$stored_for", end.time] };
        set.extend(doc! {
            "storage": { "$cond": [&is_newer, { "$literal": storage }, "$storage"] },
            "stored_for": { "$cond": [&is_newer, end.time, "$stored_for"] },
        });
    }
    let mut update = vec![doc! { "$set": set }];
    update.extend(without(end.task));
    update
}

/// The same on what was read of the schedule.
fn take(schedule: &mut Schedule, end: End) {
    if let Some(success) = end.success
        && schedule.last_success.is_none_or(|last| last.finish < success.finish)
    {
        schedule.last_success = Some(success);
    }
    if let Some(storage) = end.storage
        && schedule.stored_for.is_none_or(|stored| stored <= end.time)
    {
        schedule.storage = Some(storage);
        schedule.stored_for = Some(end.time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_schedule_is_one_that_tasks_can_have() {
        assert!(crate::gates::is_lock_name(&lock_of(ScheduleId(ObjectId::new()))));
    }

    fn at(second: i64) -> DateTime {
        DateTime::from_millis(1_795_305_600_000 + second * 1_000)
    }

    fn schedule() -> Schedule {
        Schedule::read(doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "cron": "@hourly" }).unwrap()
    }

    fn end(time: i64, finish: Option<i64>, storage: Option<&str>) -> End {
        let success = finish.map(|finish| LastSuccess { start: Some(at(finish - 1)), finish: at(finish) });
        End {
            task: TaskId(ObjectId::new()),
            status: if success.is_some() { Status::Succeeded } else { Status::Failed },
            mtime: Bson::Null,
            schedule: ScheduleId(ObjectId::new()),
            time: at(time),
            success,
            storage: storage.map(Bson::from),
        }
    }

    #[test]
    fn what_is_newer_counts_in_whatever_order_it_is_told() {
        let ends = [end(0, Some(100), Some("a")), end(60, None, Some("b")), end(120, Some(50), None)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [0, 0, 1], [1, 1, 0]] {
            let mut schedule = schedule();
            for n in order {
                take(&mut schedule, ends[n].clone());
            }
            assert_eq!(schedule.storage, Some(Bson::from("b")), "{order:?}");
            assert_eq!(schedule.last_success.map(|success| success.finish), Some(at(100)), "{order:?}");
        }
    }

    #[test]
    fn ends_are_read_from_tasks() {
        let (task, schedule) = (ObjectId::new(), ObjectId::new());
        let document = doc! {
            "_id": task, "status": 1, "mtime": at(9), "started": at(5), "schedule": schedule, "scheduled_for": at(0),
            "storage": null,
        };
        let end = End::of(&document).unwrap();
        assert_eq!(end.success, Some(LastSuccess { start: Some(at(5)), finish: at(9) }));
        assert_eq!((end.storage, end.time), (Some(Bson::Null), at(0)));
        let failed = doc! { "_id": task, "status": 2, "schedule": schedule, "scheduled_for": at(0) };
        assert_eq!(End::of(&failed).unwrap().success, None);
        assert_eq!(End::of(&doc! { "_id": task, "status": 2 }), None);
    }
}
