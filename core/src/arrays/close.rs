//! The end of an array: when no element is left that has not ended, it is done, and the task that comes after all is let go
//! or cancelled.

use disbatch_operation::operation;
use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::options::ReadConcern;

use super::{Array, FinalWhen, GATE, new_rev};
use crate::bulk::State;
use crate::model::{ArrayId, QueueId, Status, TaskId, whole_number};
use crate::store::{Store, StoreError, Stored};
use crate::task::transition::Transition;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArraysPassed {
    /// Arrays that lacked elements, and have them now.
    pub filled: u64,
    /// Arrays that are done now.
    pub closed: u64,
}

impl Store {
    /// Does what there is to do about arrays: inserts elements that are missing, and ends arrays whose elements have all
    /// ended. It costs one index entry for each array that is open. Any number of processes may do so at once.
    ///
    /// # Errors
    /// The database cannot be reached, or this user has no right to arrays. What was done by then is done.
    #[operation]
    pub async fn pass_arrays(&self) -> Result<ArraysPassed, StoreError> {
        let filled = self.fill_left().await?;
        let waiting = doc! {
            "work": true, "filling": { "$exists": false },
            "$expr": { "$lte": [{ "$ifNull": ["$hold_until", "$$NOW"] }, "$$NOW"] },
        };
        let found = self.arrays().find(waiting).read_concern(ReadConcern::majority()).await?;
        let found: Vec<Stored> = found.try_collect().await?;
        let mut closed = 0;
        for array in &found {
            closed += u64::from(self.look_at_array(array).await?);
        }
        Ok(ArraysPassed { filled, closed })
    }

    /// Ends an array if it is over. Returns whether that was so.
    async fn look_at_array(&self, stored: &Document) -> Result<bool, StoreError> {
        let Some(array) = Array::stored(stored) else { return Ok(false) };
        if stored.get_bool("last_due").unwrap_or(false) {
            self.settle_last(&array, stored.get("rev")).await?;
            return Ok(false);
        }
        if self.has_live_element(array.id).await? || self.is_being_retried(stored).await? {
            return Ok(false);
        }
        let Some(counts) = self.count_ended(array.id).await? else { return Ok(false) };
        let all: i64 = counts.values().sum();
        let count = i64::from(array.count);
        if all > count {
            // One is on its way to the archive: in both for a moment.
            return Ok(false);
        }
        // One that is gone is none that has succeeded.
        let succeeded = counts.get(&Status::Succeeded.code()) == Some(&count);
        let same = doc! { "_id": array.id, "state": "open", "rev": stored.get("rev").cloned() };
        let rev = new_rev();
        let shown: Vec<Document> =
            counts.iter().map(|(status, tasks)| doc! { "status": *status, "tasks": *tasks }).collect();
        let mut set = doc! {
            "state": "done", "ended": "$$NOW", "succeeded": succeeded, "counts": shown, "rev": &rev,
        };
        let mut unset = vec!["retrying", "hold_until"];
        match array.last {
            Some(_) => drop(set.insert("last_due", true)),
            None => unset.push("work"),
        }
        let update = vec![doc! { "$set": set }, doc! { "$unset": unset }];
        if self.arrays().update_one(same, update).await?.matched_count == 0 {
            return Ok(false);
        }
        if array.last.is_some() {
            self.settle_last(&Array { succeeded: Some(succeeded), ..array }, Some(&rev)).await?;
        }
        Ok(true)
    }

    async fn has_live_element(&self, array: ArrayId) -> Result<bool, StoreError> {
        let live = doc! { "array.id": array, "status": { "$in": Status::LIVE.to_vec() } };
        let tasks = self.tasks();
        let found = tasks.find(live).projection(doc! { "_id": 1 }).limit(1);
        // An end that a failover takes back is none.
        let mut found = found.read_concern(ReadConcern::majority()).await?;
        Ok(found.try_next().await?.is_some())
    }

    /// Whether a bulk job is still at retrying its elements.
    async fn is_being_retried(&self, stored: &Document) -> Result<bool, StoreError> {
        let Ok(job) = stored.get_object_id("retrying") else { return Ok(false) };
        Ok(self.find_bulk(job).await?.is_some_and(|job| job.state == State::Running))
    }

    /// How many elements have ended how. `None`: that cannot be told at this moment.
    async fn count_ended(&self, array: ArrayId) -> Result<Option<BTreeMap<i64, i64>>, StoreError> {
        let pipeline = || {
            vec![
                doc! { "$match": { "array.id": array } },
                doc! { "$group": { "_id": "$status", "tasks": { "$sum": 1_i64 } } },
            ]
        };
        let mut counts = BTreeMap::new();
        // What is moved to the archive meanwhile comes twice then, and is never missed.
        for collection in [self.tasks(), self.archive()] {
            let found = collection.aggregate(pipeline()).read_concern(ReadConcern::majority()).await?;
            let found: Vec<Document> = found.try_collect().await?;
            for group in &found {
                let numbers =
                    group.get("_id").and_then(whole_number).zip(group.get("tasks").and_then(whole_number));
                let Some((status, tasks)) = numbers else { return Ok(None) };
                *counts.entry(status).or_insert(0) += tasks;
            }
        }
        let moving = doc! { "moving": true, "array.id": array };
        let moving = self.archive().find_one(moving).projection(doc! { "_id": 1 }).await?;
        Ok(moving.is_none().then_some(counts))
    }

    /// Lets the task go that comes after all elements, or cancels it.
    pub(super) async fn settle_last(&self, array: &Array, rev: Option<&Bson>) -> Result<(), StoreError> {
        if let Some((last, when)) = array.last {
            if array.succeeded == Some(true) || when == FinalWhen::Finished {
                self.let_last_go(array.queue, last).await?;
            } else {
                self.stand_last_down(array.queue, last).await?;
            }
        }
        let same = doc! { "_id": array.id, "last_due": true, "rev": rev.cloned() };
        self.arrays().update_one(same, doc! { "$unset": { "last_due": "", "work": "" } }).await?;
        Ok(())
    }

    /// To the gate that all new tasks pass, from where it goes to its queue or its locks. One that was cancelled because
    /// elements had failed, which have been tried again since, goes there too.
    async fn let_last_go(&self, queue: QueueId, last: TaskId) -> Result<(), StoreError> {
        let waiting = doc! { "_id": last, "$or": [
            { "status": Status::Blocked, "gate": GATE },
            { "status": Status::Cancelled, "stood_down": true },
        ] };
        let go = Transition::to(Status::Blocked, self.now()).set("gate", "new").unset("stood_down");
        let go = go.note("all elements of its array have ended").pipeline();
        let before =
            self.tasks().find_one_and_update(waiting.clone(), go).projection(doc! { "status": 1 }).await;
        let before = match before.inspect_err(|_| self.doubt_counters()).map_err(StoreError::from) {
            Err(error) if error.is_about_one() => {
                self.end_unfit(last, &waiting, Status::Terminated, error).await?;
                return Ok(());
            }
            before => before?,
        };
        let Some(before) = before else { return Ok(()) };
        let from = before.get("status").and_then(whole_number).map(Status::from_code);
        self.moved(queue, from, Some(Status::Blocked), 1);
        self.link_at_once(&[last]).await;
        Ok(())
    }

    async fn stand_last_down(&self, queue: QueueId, last: TaskId) -> Result<(), StoreError> {
        let waiting = doc! { "_id": last, "status": Status::Blocked, "gate": GATE };
        let update = Transition::to(Status::Cancelled, self.now()).set("stood_down", true).end_of_block();
        let update = update.note("not all elements of its array have succeeded").pipeline();
        let updated = self.tasks().update_one(waiting.clone(), update).await;
        let updated = match updated.inspect_err(|_| self.doubt_counters()).map_err(StoreError::from) {
            Err(error) if error.is_about_one() => {
                self.end_unfit(last, &waiting, Status::Cancelled, error).await?;
                return Ok(());
            }
            updated => updated?.matched_count,
        };
        self.moved(queue, Some(Status::Blocked), Some(Status::Cancelled), updated);
        Ok(())
    }

    /// Notes that a bulk job retries elements, so that the array is not done before it is.
    #[operation]
    pub async fn hold_array(&self, id: ArrayId, job: ObjectId) -> Result<(), StoreError> {
        let open = doc! { "_id": id, "state": "open" };
        let update = doc! {
            "$set": { "retrying": job, "rev": new_rev() }, "$unset": { "hold_until": "" },
        };
        self.arrays().update_one(open, update).await?;
        Ok(())
    }
}
