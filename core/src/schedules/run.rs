//! Tasks of schedules that people ask for: one now, or those of times that have passed.

use disbatch_operation::operation;
use std::collections::BTreeSet;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};

use super::tasks::{ASKED_FOR, options_of};
use super::{Firing, MOST_BACKFILLED, Overlap, Schedule, ScheduleId};
use crate::admission::Admitted;
use crate::keys::{self, Key, Settled};
use crate::model::{Status, TaskId};
use crate::store::{Store, StoreError, collect, put, with};
use crate::task::{SubmitError, TaskOptions};

/// How often a task that is to run now is tried: there may be one for the very same millisecond.
const TRIES: u32 = 5;

/// So many tasks are inserted at once.
const BATCH: usize = 200;

/// As long as their parameters have no more bytes together.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// So many times are looked at by a backfill: most of them may have a task already.
const MOST_LOOKED_AT: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    #[error("to: it is before from")]
    Order,
    #[error("limit: expected 1 to {most}, not {0}", most = MOST_BACKFILLED)]
    Limit(usize),
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl From<StoreError> for BackfillError {
    fn from(error: StoreError) -> Self {
        Self::Submit(error.into())
    }
}

impl Store {
    /// Makes a task of a schedule that is for this moment, whether the schedule is paused or not, and whatever other tasks
    /// of it do. As somebody asks for it, it is refused where other new tasks are. `owner`: who wants it. `None`: there is no
    /// such schedule.
    #[operation(schedule = %id)]
    pub async fn run_schedule(
        &self,
        id: ScheduleId,
        owner: Option<&str>,
    ) -> Result<Option<TaskId>, SubmitError> {
        let Some(schedule) = self.schedule(id).await? else { return Ok(None) };
        let options = options_of(&schedule, false, owner);
        let admitted = self.admit(schedule.settings.queue, &options, 1).await?;
        let made = self.insert_wanted(&schedule, &options, &admitted).await;
        let firing = self.conclude(admitted, made).await?;
        self.note_wanted(&schedule, firing).await?;
        Ok(Some(firing.task))
    }

    async fn insert_wanted(
        &self,
        schedule: &Schedule,
        options: &TaskOptions,
        admitted: &Admitted,
    ) -> Result<Firing, SubmitError> {
        let mut time = self.server_time().await?;
        for _ in 0..TRIES {
            let firing = Firing { time, task: TaskId(ObjectId::new()) };
            let mut task = self.task_of(schedule, firing, options, admitted).await?;
            task.insert(ASKED_FOR, true);
            let status = Status::stored(&task);
            let inserted = self.insert_for(schedule.id, firing, task).await;
            if inserted.inspect_err(|_| self.doubt_counters())? {
                self.count_made(schedule, status, &[firing.task]).await;
                return Ok(firing);
            }
            time = time.saturating_add_millis(1);
        }
        let reason = "too many tasks of the schedule are for this moment".to_owned();
        Err(StoreError::Unconfirmed { reason }.into())
    }

    /// Inserts a task for a time. Returns whether it is there: no other one has the time.
    async fn insert_for(
        &self,
        schedule: ScheduleId,
        firing: Firing,
        task: Document,
    ) -> Result<bool, StoreError> {
        match self.new_tasks().insert_one(keys::pending(task)).await.map_err(StoreError::from) {
            // The index of an earlier release.
            Err(error) if error.is_duplicate_key() => return Ok(false),
            inserted => drop(inserted?),
        }
        let key = Key::Time { schedule, at: firing.time };
        Ok(self.settle_pending(firing.task, &key).await? == Settled::GoesOn)
    }

    /// Makes the tasks for the times from `from` to `to` that have none yet, the oldest first and at most `limit`. Times
    /// that are still to come are not among them. A time counts as done as long as its task is in `tasks` or in the archive.
    /// Of more than 100,000 times the first ones are looked at. Unless overlap is allowed, the tasks run one after the other. They are refused
    /// where other new tasks are: those before exist then, and repeating it makes the others. `None`: there is no such schedule.
    #[operation(schedule = %id)]
    pub async fn backfill_schedule(
        &self,
        id: ScheduleId,
        (from, to): (DateTime, DateTime),
        limit: usize,
    ) -> Result<Option<Vec<TaskId>>, BackfillError> {
        if to < from {
            return Err(BackfillError::Order);
        }
        if !(1..=MOST_BACKFILLED).contains(&limit) {
            return Err(BackfillError::Limit(limit));
        }
        let Some(schedule) = self.schedule(id).await? else { return Ok(None) };
        let calendars = self.calendars_of(&schedule.settings.spec).await?;
        let to = to.min(self.server_time().await?);
        let before = from.saturating_add_millis(-1);
        let times = schedule.settings.spec.times(&calendars, before).take_while(|time| *time <= to);
        let mut times = times.take(MOST_LOOKED_AT);
        let bytes = bson::serialize_to_vec(&schedule.settings.params).map_or(0, |bytes| bytes.len());
        let together = (MOST_BYTES / bytes.max(1)).clamp(1, BATCH);
        let mut ids = Vec::new();
        while ids.len() < limit {
            let batch: Vec<DateTime> = times.by_ref().take(together).collect();
            if batch.is_empty() {
                break;
            }
            let done = self.times_with_task(&schedule, &batch, &[]).await?;
            let open = batch.into_iter().filter(|time| !done.contains(time)).take(limit - ids.len());
            let made = self.backfill(&schedule, open.collect()).await?;
            ids.extend(made);
        }
        Ok(Some(ids))
    }

    /// Those of these times that have no task, and are not about to get one; at most `limit`.
    #[operation(schedule = %schedule.id)]
    pub async fn times_without_task(
        &self,
        schedule: &Schedule,
        times: &[DateTime],
        limit: usize,
    ) -> Result<Vec<DateTime>, StoreError> {
        let mut open = Vec::new();
        for batch in times.chunks(BATCH) {
            let done = self.times_with_task(schedule, batch, &[]).await?;
            open.extend(batch.iter().filter(|time| !done.contains(time)));
            if open.len() >= limit {
                break;
            }
        }
        open.truncate(limit);
        Ok(open)
    }

    /// Which of these times have a task already, or are to get one, besides those of `except`.
    async fn times_with_task(
        &self,
        schedule: &Schedule,
        times: &[DateTime],
        except: &[ObjectId],
    ) -> Result<BTreeSet<DateTime>, StoreError> {
        let mut done: BTreeSet<DateTime> = schedule.firing.iter().map(|firing| firing.time).collect();
        // In this order: a task leaves `tasks` only when it is in the archive.
        for collection in [self.tasks(), self.archive()] {
            let filter = doc! { "schedule": schedule.id, "scheduled_for": { "$in": times.to_vec() } };
            let mut filter = with(filter, keys::not_pending());
            put(&mut filter, "_id", (!except.is_empty()).then(|| doc! { "$nin": except }));
            let found =
                collect(collection.find(filter).projection(doc! { "_id": 0, "scheduled_for": 1 })).await?;
            done.extend(found.iter().filter_map(|task| task.get_datetime("scheduled_for").ok().copied()));
        }
        Ok(done)
    }

    async fn backfill(&self, schedule: &Schedule, times: Vec<DateTime>) -> Result<Vec<TaskId>, SubmitError> {
        if times.is_empty() {
            return Ok(Vec::new());
        }
        let options = options_of(schedule, schedule.settings.overlap != Overlap::Allow, None);
        let admitted = self.admit(schedule.settings.queue, &options, times.len()).await?;
        let made = self.insert_missed(schedule, times, &options, &admitted).await;
        self.conclude(admitted, made).await
    }

    /// Inserts the tasks of times that have passed, as far as no other ones have these: see [`crate::keys`].
    async fn insert_missed(
        &self,
        schedule: &Schedule,
        times: Vec<DateTime>,
        options: &TaskOptions,
        admitted: &Admitted,
    ) -> Result<Vec<TaskId>, SubmitError> {
        let mut tasks: Vec<Document> = Vec::with_capacity(times.len());
        let mut made: Vec<Firing> = Vec::with_capacity(times.len());
        let mut status = None;
        for time in times {
            let firing = Firing { time, task: TaskId(ObjectId::new()) };
            let mut task = self.task_of(schedule, firing, options, admitted).await?;
            task.insert(ASKED_FOR, true);
            status = Status::stored(&task);
            tasks.push(keys::pending(task));
            made.push(firing);
        }
        let inserted = self.new_tasks().insert_many(&tasks).ordered(false).await;
        // By the index of an earlier release.
        let refused = keys::duplicates(inserted).inspect_err(|_| self.doubt_counters())?;
        let made = without_those(made, &refused);
        let made = self.settle_missed(schedule, made).await.inspect_err(|_| self.doubt_counters())?;
        self.count_made(schedule, status, &made).await;
        Ok(made)
    }

    /// Has pending tasks go on whose times no other ones have, and removes the others.
    async fn settle_missed(&self, schedule: &Schedule, new: Vec<Firing>) -> Result<Vec<TaskId>, StoreError> {
        let key_of = |firing: &Firing| Key::Time { schedule: schedule.id, at: firing.time };
        let keys: Vec<(Key, TaskId)> = new.iter().map(|firing| (key_of(firing), firing.task)).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let own: Vec<ObjectId> = new.iter().map(|firing| firing.task.0).collect();
        let taken = match self.take_free_keys(&keys).await {
            Err(error) if error.is_forbidden() => {
                self.remove_pending(&own).await?;
                return Err(error);
            }
            taken => taken?,
        };
        let mut made = Vec::with_capacity(new.len());
        for (key, task) in taken.iter().filter_map(|place| keys.get(*place)) {
            if self.settle_pending(*task, key).await? == Settled::GoesOn {
                made.push(*task);
            }
        }
        let held = without_those(new, &taken);
        let times: Vec<DateTime> = held.iter().map(|firing| firing.time).collect();
        // Only now: somebody may have made one, and it may be in the archive by now.
        let done = self.times_with_task(schedule, &times, &own).await?;
        let (done, free): (Vec<Firing>, Vec<Firing>) =
            held.into_iter().partition(|firing| done.contains(&firing.time));
        let ids = |firings: &[Firing]| firings.iter().map(|firing| firing.task.0).collect::<Vec<_>>();
        if !done.is_empty() {
            self.remove_pending(&ids(&done)).await?;
        }
        self.let_go_on(&ids(&free)).await?;
        made.extend(free.iter().map(|firing| firing.task));
        // In the order of their times, as their ids are.
        made.sort_unstable();
        Ok(made)
    }

    async fn note_wanted(&self, schedule: &Schedule, firing: Firing) -> Result<(), StoreError> {
        let last = doc! { "for": firing.time, "task": firing.task, "at": firing.time, "outcome": "fired" };
        let update = doc! { "$set": { "last": last }, "$inc": { "counts.fired": 1_i64 } };
        self.schedules().update_one(doc! { "_id": schedule.id }, update).await?;
        Ok(())
    }
}

fn without_those(firings: Vec<Firing>, places: &BTreeSet<usize>) -> Vec<Firing> {
    let others = firings.into_iter().enumerate().filter(|(place, _)| !places.contains(place));
    others.map(|(_, firing)| firing).collect()
}
