//! Arrays: many tasks that are alike but for one value, submitted as one, with at most so many of them at once, and a task
//! after the last of them.
//!
//! An array is a document of `arrays`, which is there before its tasks. Its elements have ids that follow from its own, so that
//! whoever inserts them twice finds that they are there; they do not leave before it is noted that they are. As long as elements are missing it is `filling`, and
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

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};

pub(crate) use close::KEPT;
pub use close::{ArraysPassed, Reopened};
pub(crate) use fill::{first_lease, in_doubt};
pub use items::{ArrayError, Items, MOST_ELEMENTS, Range, element_id};
pub(crate) use items::{final_id, new_id};
pub use show::{ArrayFilter, ArrayRow, Cell, Counts, Element};

use crate::model::{ArrayId, QueueId, TaskId, whole_number};
use disbatch_values::words;

/// At which gate the task waits that comes after all elements.
pub(crate) const GATE: &str = "array";

words! {
    /// What its elements must have come to before the task that comes after them starts.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub enum FinalWhen {
        /// All of them have succeeded. If one has not, the task is cancelled.
        #[default]
        Succeeded = "succeeded",
        /// All of them have ended, however.
        Finished = "finished",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct FinalTask {
    pub params: Document,
    pub when: FinalWhen,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewArray {
    pub items: Items,
    /// How many of them may run at once.
    pub cap: Option<u32>,
    /// The parameter that says which element it is.
    pub key: String,
    pub params: Document,
    pub last: Option<FinalTask>,
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ArrayState {
        /// Elements have not ended, or nobody has looked yet whether they have.
        Open = "open",
        /// All elements have ended.
        Done = "done",
    }
}

/// A document of `arrays`.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub id: ArrayId,
    pub queue: QueueId,
    /// What its elements are for, in words.
    pub words: String,
    pub count: u32,
    /// How many of them exist already.
    pub inserted: u32,
    pub cap: Option<u32>,
    pub key: String,
    pub state: ArrayState,
    pub created: Option<DateTime>,
    pub ended: Option<DateTime>,
    /// Whether all elements had succeeded by then.
    pub succeeded: Option<bool>,
    pub owner: Option<String>,
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

pub(crate) fn to_look_at() -> Document {
    bson::doc! { "work": true }
}

/// The lock that keeps elements of an array from running all at once.
pub(crate) fn lock_of(array: ArrayId) -> String {
    format!("{}{array}", crate::gates::OF_ARRAYS)
}

/// Something that no other state of an array has.
pub(crate) fn new_rev() -> Bson {
    Bson::ObjectId(ObjectId::new())
}

#[cfg(test)]
mod tests {
    use bson::doc;

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
}
