//! Arrays: many tasks that are alike but for one value, submitted as one, with at most so many of them at once, and a task
//! after the last of them.
//!
//! An array is a document of `arrays`, which is there before its tasks. Its elements have ids that follow from its own, so that
//! whoever inserts them twice finds that they are there. As long as elements are missing it is `filling`, and
//! whoever fills it has it until `lease_until`; when that is past, any DEN goes on at `next_index`.
//!
//! That so many run at once at most is a lock with so many places (see [`crate::gates`]), which each element asks for.
//!
//! As long as there is something to look after, the document has `work: true`, by which DENs find it. An array whose elements
//! have all ended is done: one update on the condition that it is as it was when they were counted. That update also sets
//! `last_due` if there is a task that comes after all, and that mark goes when the task has been let go or cancelled. So whoever dies in
//! between leaves a mark.

mod close;
mod fill;
mod items;
mod show;

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;
use mongodb::Collection;

use crate::model::{ArrayId, QueueId, TaskId, whole_number};
use crate::store::{Store, StoreError, Stored, collections};
pub use close::ArraysPassed;
pub(crate) use fill::first_lease;
pub use items::{ArrayError, Items, MOST_ELEMENTS, Range, element_id};
pub(crate) use items::{final_id, new_id};
pub use show::{ArrayFilter, ArrayRow, Cell, Counts, Element};

pub(crate) const COLLECTION: &str = collections::ARRAYS.name;

/// At which gate the task waits that comes after all elements.
pub(crate) const GATE: &str = "array";

/// What its elements must have come to before the task that comes after them starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum FinalWhen {
    /// All of them have succeeded. If one has not, the task is cancelled.
    #[default]
    Succeeded,
    /// All of them have ended, however.
    Finished,
}

impl FinalWhen {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Succeeded, Self::Finished];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Finished => "finished",
        }
    }

    /// The one that is written so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|when| when.as_str() == name)
    }
}

/// The task that comes after all elements.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalTask {
    /// Its parameters.
    pub params: Document,
    /// When it starts.
    pub when: FinalWhen,
}

/// An array that somebody wants.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArray {
    /// What its elements are for.
    pub items: Items,
    /// How many of them may run at once.
    pub cap: Option<u32>,
    /// The parameter that says which element it is.
    pub key: String,
    /// The parameters that all of them have.
    pub params: Document,
    /// What comes after all of them.
    pub last: Option<FinalTask>,
}

/// Where an array stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArrayState {
    /// Elements have not ended, or nobody has looked yet whether they have.
    Open,
    /// All elements have ended.
    Done,
}

impl ArrayState {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Open, Self::Done];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
        }
    }

    /// The one that is written so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A document of `arrays`.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub id: ArrayId,
    /// The queue of its tasks.
    pub queue: QueueId,
    /// What its elements are for, in words.
    pub words: String,
    /// How many elements it has.
    pub count: u32,
    /// How many of them exist already.
    pub inserted: u32,
    /// How many of them may run at once.
    pub cap: Option<u32>,
    /// The parameter that says which element it is.
    pub key: String,
    /// Where it stands.
    pub state: ArrayState,
    /// When it was submitted.
    pub created: Option<DateTime>,
    /// When it was done.
    pub ended: Option<DateTime>,
    /// Whether all elements had succeeded by then.
    pub succeeded: Option<bool>,
    /// Who has submitted it.
    pub owner: Option<String>,
    /// For whom its tasks are.
    pub tenant: Option<String>,
    /// The task that comes after all elements, and when it starts.
    pub last: Option<(TaskId, FinalWhen)>,
}

impl Array {
    /// What is stored. `None`: it cannot be understood.
    pub(crate) fn stored(array: &Document) -> Option<Self> {
        let text = |name: &str| array.get_str(name).ok().map(str::to_owned);
        let time = |name: &str| array.get_datetime(name).ok().copied();
        let number = |name: &str| array.get(name).and_then(whole_number).and_then(|n| u32::try_from(n).ok());
        let when = array.get_str("final_when").ok().and_then(FinalWhen::named).unwrap_or_default();
        Some(Self {
            id: ArrayId(array.get_object_id("_id").ok()?),
            queue: QueueId(array.get_object_id("queue").ok()?),
            words: text("words").unwrap_or_default(),
            count: number("count")?,
            inserted: number("next_index").unwrap_or(0),
            cap: number("cap"),
            key: text("key").unwrap_or_default(),
            state: array.get_str("state").ok().and_then(ArrayState::named)?,
            created: time("created"),
            ended: time("ended"),
            succeeded: array.get_bool("succeeded").ok(),
            owner: text("owner"),
            tenant: text("tenant"),
            last: array.get_object_id("final").ok().map(|id| (TaskId(id), when)),
        })
    }
}

/// Arrays that something is to be done about.
pub(crate) fn to_look_at() -> Document {
    bson::doc! { "work": true }
}

/// The lock that keeps elements of an array from running all at once.
pub(crate) fn lock_of(array: ArrayId) -> String {
    format!("{}{array}", crate::gates::OF_ARRAYS)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Something that no other state of an array has.
pub(crate) fn new_rev() -> Bson {
    Bson::ObjectId(ObjectId::new())
}

impl Store {
    pub(crate) fn arrays(&self) -> Collection<Stored> {
        self.database().collection(COLLECTION)
    }
}

/// So long an array stays open that nobody has said more about.
const HELD: Duration = Duration::from_secs(60);

/// How often it is tried to open an array that somebody else changes at the same time.
const TRIES: usize = 5;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopened {
    /// It is open for a minute at least, or until it is told what keeps it open: see [`Store::hold_array`].
    Open,
    /// Others have changed it again and again.
    Busy,
    /// There is no such array.
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
            let until = doc! { "$add": ["$$NOW", millis(HELD)] };
            let open = doc! { "state": "open", "work": true, "hold_until": until, "rev": new_rev() };
            let unset = ["ended", "succeeded", "counts", "last_due", "gone"];
            let update = vec![doc! { "$set": open }, doc! { "$unset": unset.to_vec() }];
            if self.arrays().update_one(same, update).await?.matched_count == 1 {
                return Ok(Reopened::Open);
            }
        }
        Ok(Reopened::Busy)
    }
}

/// An array is looked at again after so long.
const EVERY: Duration = Duration::from_secs(3600);

/// So long the document of an array stays whose tasks are all gone: whoever submits it again with the same key is told of it,
/// for as long as a key is remembered.
pub(crate) const KEPT: Duration = Duration::from_secs(8 * 24 * 3600);

/// So many are looked at at once.
const AT_ONCE: i64 = 200;

impl Store {
    /// Notes which of the arrays that are done have no task any more, neither in `tasks` nor in the archive. The server removes
    /// their documents eight days later. Of many arrays those are looked at that nobody has looked at for the longest time.
    /// Returns how many were noted. A user who may not write to `arrays` notes none.
    #[operation]
    pub async fn note_empty_arrays(&self) -> Result<u64, StoreError> {
        match self.look_at_done_arrays().await {
            Err(error) if error.is_forbidden() => Ok(0),
            looked => looked,
        }
    }

    async fn look_at_done_arrays(&self) -> Result<u64, StoreError> {
        let arrays = self.arrays();
        let fields = doc! { "rev": 1, "final": 1, "looked": 1, "gone": 1 };
        let done = arrays.find(doc! { "state": "done" }).projection(fields);
        let found = done.sort(doc! { "looked": 1 }).limit(AT_ONCE).await?;
        let found: Vec<Stored> = found.try_collect().await?;
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
    let every = i64::try_from(EVERY.as_millis()).unwrap_or(i64::MAX);
    let looked = array.get_datetime("looked").map_or(i64::MIN, |looked| looked.timestamp_millis());
    looked.saturating_add(every) <= now.timestamp_millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::{LockMode, LockRequest};

    #[test]
    fn words_are_read_as_they_are_written() {
        for when in FinalWhen::ALL {
            assert_eq!(FinalWhen::named(when.as_str()), Some(when));
        }
        for state in ArrayState::ALL {
            assert_eq!(ArrayState::named(state.as_str()), Some(state));
        }
    }

    #[test]
    fn an_array_is_read_as_far_as_it_can_be() {
        let (id, queue) = (ObjectId::new(), ObjectId::new());
        let least = doc! { "_id": id, "queue": queue, "count": 3, "state": "open" };
        let array = Array::stored(&least).unwrap();
        assert_eq!((array.count, array.inserted, array.cap, array.last), (3, 0, None, None));
        let whole = doc! {
            "_id": id, "queue": queue, "count": 3_i64, "state": "done", "next_index": 2_i64, "cap": 5_i64,
            "final": id, "final_when": "finished", "succeeded": false,
        };
        let array = Array::stored(&whole).unwrap();
        assert_eq!((array.inserted, array.cap, array.succeeded), (2, Some(5), Some(false)));
        assert_eq!(array.last, Some((TaskId(id), FinalWhen::Finished)));
        assert_eq!(Array::stored(&doc! { "_id": id, "queue": queue, "count": -1, "state": "open" }), None);
    }

    #[test]
    fn nobody_but_an_array_asks_for_its_lock() {
        let request = LockRequest::internal(lock_of(new_id()), LockMode::Places(5));
        assert!(request.to_string().parse::<LockRequest>().is_err(), "{request}");
    }

    #[test]
    fn an_array_is_looked_at_once_in_a_while() {
        let at = |seconds: i64| DateTime::from_millis(seconds * 1_000);
        assert!(is_to_be_looked_at(&doc! {}, at(0)));
        assert!(!is_to_be_looked_at(&doc! { "looked": at(0) }, at(3_599)));
        assert!(is_to_be_looked_at(&doc! { "looked": at(0) }, at(3_600)));
    }
}
