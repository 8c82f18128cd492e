//! The end of an array: when no element is left that has not ended, it is done, and the task that comes after all is let go
//! or cancelled. If elements are tried again, it is open again; and when all of its tasks are deleted, it is forgotten, as nobody
//! needs it any more.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::options::ReadConcern;

use super::{Array, FinalWhen, GATE, new_rev};
use crate::model::{ArrayId, QueueId, Status, TaskId, whole_number};
use crate::store::{Store, StoreError, as_majority, collect};
use crate::task::transition::{Transition, server_time_in};

/// So long an array stays open that nobody has said more about.
const HELD: Duration = Duration::from_secs(60);

/// How often it is tried to open an array that somebody else changes at the same time.
const TRIES: usize = 5;

/// An array is looked at again after so long.
const EVERY: Duration = Duration::from_secs(3600);

/// So long the document of an array stays whose tasks are all gone: whoever submits it again with the same key is told of it,
/// for as long as a key is remembered.
pub(crate) const KEPT: Duration = Duration::from_secs(8 * 24 * 3600);

const AT_ONCE: i64 = 200;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArraysPassed {
    /// Arrays that lacked elements, and have them now.
    pub filled: u64,
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
        let found = collect(self.arrays().find(waiting).read_concern(ReadConcern::majority())).await?;
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
        if self.has_live_element(array.id).await? || self.find_retrying(stored).await?.is_some() {
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
        // An end that a failover takes back is none.
        Ok(!as_majority(&self.tasks(), live, doc! { "_id": 1 }, 1).await?.is_empty())
    }

    /// How many elements have ended how. `None`: that cannot be told at this moment.
    async fn count_ended(&self, array: ArrayId) -> Result<Option<BTreeMap<i64, i64>>, StoreError> {
        let mut counts = BTreeMap::new();
        // What is moved to the archive meanwhile comes twice then, and is never missed.
        for collection in [self.tasks(), self.archive()] {
            let pipeline = [
                doc! { "$match": { "array.id": array } },
                doc! { "$group": { "_id": "$status", "tasks": { "$sum": 1_i64 } } },
            ];
            let found = collect(collection.aggregate(pipeline).read_concern(ReadConcern::majority())).await?;
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
    async fn settle_last(&self, array: &Array, rev: Option<&Bson>) -> Result<(), StoreError> {
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
        let go = go.with_dependents().note("all elements of its array have ended").pipeline();
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
        let from = Status::stored(&before);
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopened {
    /// It is open for a minute at least, or until it is told what keeps it open: see [`Store::hold_array`].
    Open,
    /// Others have changed it again and again.
    Busy,
    NoSuchArray,
}

impl Store {
    /// Opens an array again, so that some of its elements can be tried again before it is done. Elements that are missing are
    /// inserted before that.
    #[operation(array = %id)]
    pub async fn reopen_array(&self, id: ArrayId) -> Result<Reopened, StoreError> {
        for _ in 0..TRIES {
            self.fill_array(id).await?;
            let Some(stored) = self.arrays().find_one(doc! { "_id": id }).await? else {
                return Ok(Reopened::NoSuchArray);
            };
            let Some(array) = Array::stored(&stored) else { return Ok(Reopened::NoSuchArray) };
            if stored.get_bool("last_due").unwrap_or(false) {
                self.settle_last(&array, stored.get("rev")).await?;
                continue;
            }
            let same = doc! { "_id": id, "rev": stored.get("rev").cloned(), "filling": { "$exists": false } };
            let until = server_time_in(HELD);
            let open = doc! { "state": "open", "work": true, "hold_until": until, "rev": new_rev() };
            let unset = ["ended", "succeeded", "counts", "last_due", "gone"];
            let update = vec![doc! { "$set": open }, doc! { "$unset": unset.to_vec() }];
            if self.arrays().update_one(same, update).await?.matched_count == 1 {
                return Ok(Reopened::Open);
            }
        }
        Ok(Reopened::Busy)
    }

    /// Notes which of the arrays that are done have no task any more, neither in `tasks` nor in the archive. The server removes
    /// their documents eight days later. Of many arrays those are looked at that nobody has looked at for the longest time.
    /// Returns how many were noted. A user who may not write to `arrays` notes none.
    #[operation]
    pub async fn note_empty_arrays(&self) -> Result<u64, StoreError> {
        Ok(StoreError::unless_forbidden(self.look_at_done_arrays().await)?.unwrap_or(0))
    }

    async fn look_at_done_arrays(&self) -> Result<u64, StoreError> {
        let arrays = self.arrays();
        let fields = doc! { "rev": 1, "final": 1, "looked": 1, "gone": 1 };
        let done = arrays.find(doc! { "state": "done" }).projection(fields);
        let found = collect(done.sort(doc! { "looked": 1 }).limit(AT_ONCE)).await?;
        let now = self.server_time().await?;
        let mut noted = 0;
        for array in found.iter().filter(|array| is_to_be_looked_at(array, now)) {
            let is_empty = !array.contains_key("gone") && self.has_no_task(array).await?;
            let mut set = doc! { "looked": "$$NOW" };
            if is_empty {
                set.extend(doc! { "gone": "$$NOW", "rev": new_rev() });
            }
            let same =
                doc! { "_id": array.get("_id").cloned(), "state": "done", "rev": array.get("rev").cloned() };
            let matched = arrays.update_one(same, vec![doc! { "$set": set }]).await?.matched_count;
            if is_empty {
                noted += matched;
            }
        }
        Ok(noted)
    }

    async fn has_no_task(&self, array: &Document) -> Result<bool, StoreError> {
        let (id, last) = (array.get("_id").cloned(), array.get("final").cloned());
        // A task is in both for a moment when it moves, to the archive or from there.
        for collection in [self.tasks(), self.archive(), self.tasks()] {
            let element = collection.find_one(doc! { "array.id": id.clone() }).projection(doc! { "_id": 1 });
            if element.await?.is_some() {
                return Ok(false);
            }
            if let Some(last) = &last
                && collection.find_one(doc! { "_id": last }).projection(doc! { "_id": 1 }).await?.is_some()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_to_be_looked_at(array: &Document, now: DateTime) -> bool {
    array.get_datetime("looked").ok().is_none_or(|looked| looked.saturating_add_duration(EVERY) <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_looked_at_once_in_a_while() {
        let at = |seconds: i64| DateTime::from_millis(seconds * 1_000);
        assert!(is_to_be_looked_at(&doc! {}, at(0)));
        assert!(!is_to_be_looked_at(&doc! { "looked": at(0) }, at(3_599)));
        assert!(is_to_be_looked_at(&doc! { "looked": at(0) }, at(3_600)));
    }
}
