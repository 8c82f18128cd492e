//! Which tasks of a queue run a second time, in another queue: see `core/src/shadow.rs`.

use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_values::liberal::number;
use sha2::{Digest, Sha256};

use super::drawn;
use super::{Queue, Selector, TaskId};

/// The field of a queue that says it. Absent: none do.
pub const SHADOW: &str = "shadow";

/// The field of a task that runs for the second time: the id of the first one.
pub const SHADOW_OF: &str = "shadow_of";

/// For whom the first one is. The second one is nobody's, so that it is in nobody's quota.
pub const SHADOW_TENANT: &str = "shadow_tenant";

/// What tells this draw from that of recordings.
const DRAW: &[u8] = b"shadow";

/// A part of all tasks, and where they run for the second time.
#[derive(Debug, Clone, PartialEq)]
pub struct Shadow {
    /// The name or id of the other queue.
    pub queue: String,
    /// Which part: from 0 to 1.
    pub share: f64,
}

impl Shadow {
    /// What the queue says. Values that make no sense count as none.
    pub fn of(queue: &Queue) -> Option<Self> {
        queue.rest.get(SHADOW).and_then(Bson::as_document).and_then(Self::from_document)
    }

    fn from_document(document: &Document) -> Option<Self> {
        let share = document.get("share").and_then(number).filter(|share| *share > 0.0 && *share <= 1.0)?;
        Some(Self { queue: document.get_str("queue").ok()?.to_owned(), share })
    }

    pub fn selector(&self) -> Selector {
        Selector::parse(&self.queue)
    }

    /// Whether it has this task. The same for whoever asks: it follows from the id.
    pub fn has(&self, task: TaskId) -> bool {
        drawn([&task.0.bytes()[..], DRAW]) < self.share
    }
}

/// The id of the task that runs for the second time. It follows from that of the first one, and is as old.
pub fn shadow_id(task: TaskId) -> TaskId {
    let bytes = task.0.bytes();
    let sum = Sha256::new().chain_update(bytes).chain_update(DRAW).finalize();
    let mut id = bytes;
    id[4..].copy_from_slice(&sum[..8]);
    TaskId(ObjectId::from_bytes(id))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn what_makes_no_sense_is_no_shadow() {
        let of = |document: Document| Shadow::from_document(&document);
        let shadow = Shadow { queue: "next".to_owned(), share: 0.5 };
        assert_eq!(of(doc! { "queue": "next", "share": 0.5 }), Some(shadow));
        for odd in [doc! { "queue": "next" }, doc! { "share": 1 }, doc! { "queue": 5, "share": 1 }] {
            assert_eq!(of(odd.clone()), None, "{odd}");
        }
        for share in [0.0, 1.5, f64::NAN] {
            assert_eq!(of(doc! { "queue": "next", "share": share }), None, "{share}");
        }
    }

    #[test]
    fn it_has_as_many_as_it_says_and_more_of_them_with_a_larger_share() {
        let tasks: Vec<TaskId> = (0..2000).map(|_| TaskId(ObjectId::new())).collect();
        let of = |share: f64| {
            let shadow = Shadow { queue: "next".to_owned(), share };
            tasks.iter().copied().filter(|task| shadow.has(*task)).collect::<Vec<_>>()
        };
        assert_eq!(of(1.0), tasks);
        let (few, more) = (of(0.25), of(0.5));
        // Ten standard deviations.
        assert!((276..=724).contains(&few.len()), "{}", few.len());
        assert!(few.iter().all(|task| more.contains(task)));
    }

    #[test]
    fn the_second_task_has_an_id_of_its_own_that_is_as_old() {
        let (one, other) = (TaskId(ObjectId::new()), TaskId(ObjectId::new()));
        assert_eq!(shadow_id(one), shadow_id(one));
        assert!(shadow_id(one) != shadow_id(other) && shadow_id(one) != one);
        assert_eq!(shadow_id(one).0.timestamp(), one.0.timestamp());
    }
}
