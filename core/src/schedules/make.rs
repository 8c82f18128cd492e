//! How the task of a time that has fired is made, so that it is made once, however many do so and however late.

use disbatch_operation::operation;

use bson::{Document, doc};
use futures::TryStreamExt;

use super::{Firing, Overlap, Schedule, ScheduleId};
use crate::admission::Admitted;
use crate::gates::{LockMode, LockRequest};
use crate::keys::{Hold, Key};
use crate::model::{Status, TaskId, whole_number};
use crate::store::{Store, StoreError, Stored};
use crate::task::{CancelRequest, SubmitError, TaskOptions};
use disbatch_metrics::labels::Source;

/// What tasks of a schedule have that people have asked for: no time of the schedule cancels them.
pub(super) const ASKED_FOR: &str = "asked_for";

impl Store {
    /// Makes the task of a time that has fired, and removes it from those that are to be made. Whatever of it was done
    /// before, however long ago, is not done again.
    #[operation(schedule = %schedule.id, task = %firing.task)]
    pub async fn complete_firing(&self, schedule: &Schedule, firing: Firing) -> Result<(), StoreError> {
        if schedule.settings.overlap == Overlap::Cancel {
            self.cancel_earlier(schedule, firing).await?;
        }
        match self.insert_fired(schedule, firing).await {
            Ok(()) => self.fired_is_there(schedule.id, firing).await,
            Err(SubmitError::Store(error)) if error.is_transient() || error.is_forbidden() => Err(error),
            // The server had no time for it.
            Err(SubmitError::Store(error)) if error.is_out_of_time() => Err(error),
            Err(error) => {
                tracing::error!(
                    schedule = %schedule.settings.name, time = %firing.time, %error, "the task of a schedule cannot be made"
                );
                self.fired_in_vain(schedule.id, firing).await
            }
        }
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
        let status = task.get("status").and_then(whole_number).map(Status::from_code);
        let is_to_be_made = doc! { "_id": schedule.id, "firing.task": firing.task };
        match self.insert_because(&self.schedules(), is_to_be_made, task).await {
            Ok(()) => {}
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                return match self.has_task(&key, firing.task).await? {
                    true => Ok(()),
                    // The index of an earlier release counts it. It goes away, as the time is this one's, which is made later.
                    false => {
                        let reason = "a pending task is for the same time".to_owned();
                        Err(StoreError::Unconfirmed { reason }.into())
                    }
                };
            }
            Err(error) => {
                self.doubt_counters();
                return Err(error.into());
            }
        }
        self.submitted(schedule.settings.queue, status, 1, Source::Schedule);
        if status == Some(Status::Blocked) {
            self.link_at_once(&[firing.task]).await;
        }
        Ok(())
    }

    /// A task of a schedule, as it is born.
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
        let found = self.tasks().find(earlier).projection(doc! { "_id": 1 }).await?;
        let found: Vec<Stored> = found.try_collect().await?;
        let request = CancelRequest {
            by: format!("the schedule {}", schedule.settings.name),
            reason: Some("its next time has come".to_owned()),
        };
        for id in found.iter().filter_map(|task| task.get_object_id("_id").ok()) {
            self.cancel_task(TaskId(id), &request).await?;
        }
        Ok(())
    }

    /// Removes an entry of `firing`: its task is there.
    async fn fired_is_there(&self, schedule: ScheduleId, firing: Firing) -> Result<(), StoreError> {
        let with_it = doc! { "_id": schedule, "firing.task": firing.task };
        self.schedules().update_one(with_it, without(firing.task)).await?;
        Ok(())
    }

    /// Removes an entry of `firing` whose task cannot be made.
    async fn fired_in_vain(&self, schedule: ScheduleId, firing: Firing) -> Result<(), StoreError> {
        let mut update = without(firing.task);
        let is_last = doc! { "$eq": ["$last.task", firing.task] };
        update.push(doc! { "$set": {
            "last.outcome": { "$cond": [is_last, "refused", "$last.outcome"] },
            "counts.fired": { "$subtract": ["$counts.fired", 1] },
            "counts.skipped": { "$add": ["$counts.skipped", 1] },
        } });
        self.schedules().update_one(doc! { "_id": schedule, "firing.task": firing.task }, update).await?;
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
pub(super) fn without(task: TaskId) -> Vec<Document> {
    let others = doc! { "$filter": {
        "input": { "$ifNull": ["$firing", []] }, "cond": { "$ne": ["$$this.task", task] },
    } };
    let since = doc! { "$cond": [{ "$eq": ["$firing", []] }, "$$REMOVE", "$firing_at"] };
    vec![doc! { "$set": { "firing": others } }, doc! { "$set": { "firing_at": since } }]
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn the_lock_of_a_schedule_is_one_that_tasks_can_have() {
        assert!(crate::gates::is_lock_name(&lock_of(ScheduleId(ObjectId::new()))));
    }
}
