//! Parts of a queue's tasks, drawn by their ids: which attempts are recorded; which tasks run a second time, in another queue (see
//! `core/src/shadow.rs`); and which are run by another version of the plugin, to see how that does.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document};
use disbatch_values::liberal::number;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Queue, Selector, Task, TaskId, Version};

/// The field of a queue that says which attempts of its tasks are recorded. Absent: none are.
pub const RECORD: &str = "record";

/// For how many days a recording is kept at most.
pub const LONGEST_KEPT: u32 = 3650;

/// For how long one is kept of a queue that does not say it: a week.
const DAYS_KEPT: f64 = 7.0;

const DAY: f64 = 86_400.0;

/// A part of all attempts, whose recordings are kept for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Which part: from 0 to 1.
    pub share: f64,
    pub keep: Duration,
}

impl Sample {
    /// What the queue says. Values that make no sense count as no recording.
    pub fn of(queue: &Queue) -> Option<Self> {
        let record = queue.rest.get_document(RECORD).ok()?;
        let share = share_of(record)?;
        let keep = record.get("keep").map_or(Some(DAYS_KEPT), number);
        let keep = keep.filter(|days| *days > 0.0 && *days <= f64::from(LONGEST_KEPT))?;
        Some(Self { share, keep: Duration::from_secs_f64(keep * DAY) })
    }

    /// Whether it has this attempt. The same for whoever asks: it follows from the ids.
    pub fn has(&self, task: TaskId, attempt: i64) -> bool {
        drawn([&task.0.bytes()[..], &attempt.to_be_bytes()]) < self.share
    }
}

/// What a document says of a part: above 0, up to 1.
fn share_of(document: &Document) -> Option<f64> {
    document.get("share").and_then(number).filter(|share| *share > 0.0 && *share <= 1.0)
}

/// A number from 0 on that these decide. It is below 1, so that a share of 1 has them all.
pub fn drawn(of: [&[u8]; 2]) -> f64 {
    let [one, other] = of;
    let sum = Sha256::new().chain_update(one).chain_update(other).finalize();
    let drawn = sum.iter().take(4).fold(0_u32, |drawn, byte| (drawn << 8) | u32::from(*byte));
    f64::from(drawn) / (f64::from(u32::MAX) + 1.0)
}

/// The field of a queue that says which of its tasks run a second time. Absent: none do.
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
        let shadow = queue.rest.get_document(SHADOW).ok()?;
        Some(Self { queue: shadow.get_str("queue").ok()?.to_owned(), share: share_of(shadow)? })
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

/// The field of a queue with its canary. Absent: it has none.
pub const CANARY: &str = "canary";

/// The field of a queue that says why its last canary was taken back. It goes when another version is pinned or tried.
pub const CANARY_RETURNED: &str = "canary_returned";

/// When it began, in the field.
pub const BEGAN: &str = "began";

#[derive(Debug, Clone, PartialEq)]
pub struct Canary {
    pub version: Version,
    /// Which part of its tasks have it: above 0, up to 1.
    pub share: f64,
    /// Since when. With the queue's id, this tells it from every other.
    pub began: DateTime,
}

impl Canary {
    /// That of a queue. One that makes no sense counts as none: then all tasks are run as if nothing were tried.
    pub fn of(queue: &Queue) -> Option<Self> {
        let canary = queue.rest.get_document(CANARY).ok()?;
        Some(Self {
            version: canary.get_str("version").ok()?.parse().ok()?,
            share: share_of(canary)?,
            // Somebody has written it by hand.
            began: canary.get_datetime(BEGAN).copied().unwrap_or(DateTime::from_millis(0)),
        })
    }

    /// Whether it has this task. The same for whoever asks, with every attempt; and a larger share of the same version has all that a
    /// smaller one has.
    pub fn has(&self, task: TaskId) -> bool {
        drawn([&task.0.bytes()[..], self.version.as_str().as_bytes()]) < self.share
    }
}

/// Of which canary's time an attempt is, and what it was run by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub began: DateTime,
    /// Whether it was run by the version that is tried.
    pub is_canary: bool,
}

impl Trial {
    /// That of an attempt of `task`, which was claimed when `queue` was as it is here.
    pub fn of(queue: &Queue, task: &Task) -> Option<Self> {
        let canary = Canary::of(queue)?;
        let version = task.plugin_version().or_else(|| queue.version_for(task.id));
        Some(Self { began: canary.began, is_canary: version == Some(canary.version) })
    }

    /// The same of an attempt that somebody else ends, who knows the queue as it is now: unless it began before the canary.
    pub fn of_started(queue: &Queue, task: &Task) -> Option<Self> {
        let started = task.rest.get_datetime("started").ok()?;
        Self::of(queue, task).filter(|trial| trial.began <= *started)
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    fn with(field: &str, document: Document) -> Queue {
        let rest = doc! { field: document };
        Queue { rest, ..Queue::without_document(crate::QueueId(ObjectId::new())) }
    }

    #[test]
    fn what_makes_no_sense_is_no_recording() {
        let of = |document: Document| Sample::of(&with(RECORD, document));
        let days = |days: u64| Duration::from_secs(days * 86_400);
        assert_eq!(of(doc! { "share": 1 }), Some(Sample { share: 1.0, keep: days(7) }));
        assert_eq!(of(doc! { "share": 0.5, "keep": 2 }), Some(Sample { share: 0.5, keep: days(2) }));
        let odd =
            [doc! { "share": 0 }, doc! { "share": 1.5 }, doc! { "share": 1, "keep": 0 }, doc! { "keep": 1 }];
        for odd in odd.into_iter().chain([doc! { "share": "all" }, doc! {}]) {
            assert_eq!(of(odd.clone()), None, "{odd}");
        }
    }

    #[test]
    fn it_has_as_many_as_it_says_and_each_attempt_is_drawn_by_itself() {
        let tasks: Vec<TaskId> = (0..2000).map(|_| TaskId(ObjectId::new())).collect();
        let keep = Duration::from_secs(1);
        let count = |share: f64, attempt| {
            tasks.iter().filter(|task| Sample { share, keep }.has(**task, attempt)).count()
        };
        assert_eq!(count(1.0, 1), tasks.len());
        // Ten standard deviations.
        assert!((276..=724).contains(&count(0.25, 1)), "{}", count(0.25, 1));
        let both =
            |task: &&TaskId| [1, 2].iter().all(|attempt| Sample { share: 0.5, keep }.has(**task, *attempt));
        assert!((276..=724).contains(&tasks.iter().filter(both).count()));
    }

    #[test]
    fn what_makes_no_sense_is_no_shadow() {
        let of = |document: Document| Shadow::of(&with(SHADOW, document));
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

    fn canary(version: &str, share: f64) -> Canary {
        Canary { version: version.parse().unwrap(), share, began: DateTime::from_millis(5) }
    }

    #[test]
    fn what_makes_no_sense_is_no_canary() {
        let of = |document: Document| Canary::of(&with(CANARY, document));
        let began = DateTime::from_millis(5);
        assert_eq!(of(doc! { "version": "2", "share": 0.25, "began": began }), Some(canary("2", 0.25)));
        let by_hand = of(doc! { "version": "2", "share": 1 }).unwrap();
        assert_eq!((by_hand.share, by_hand.began.timestamp_millis()), (1.0, 0));
        for odd in [
            doc! {},
            doc! { "version": "2" },
            doc! { "version": "2", "share": 0 },
            doc! { "version": "2", "share": 1.5 },
            doc! { "version": 2, "share": 0.5 },
            doc! { "version": "a b", "share": 0.5 },
        ] {
            assert_eq!(of(odd.clone()), None, "{odd}");
        }
    }

    #[test]
    fn a_larger_share_has_all_of_a_smaller_one_and_versions_have_others() {
        let tasks: Vec<TaskId> = (0..4000).map(|_| TaskId(ObjectId::new())).collect();
        let of = |canary: Canary| -> Vec<TaskId> {
            tasks.iter().copied().filter(|task| canary.has(*task)).collect()
        };
        let (few, many, other) = (of(canary("2", 0.25)), of(canary("2", 0.5)), of(canary("3", 0.25)));
        // More than seven standard deviations.
        assert!((800..=1200).contains(&few.len()) && (1750..=2250).contains(&many.len()));
        assert!(few.iter().all(|task| many.contains(task)));
        let both = few.iter().filter(|task| other.contains(task)).count();
        assert!((130..=380).contains(&both), "{both}");
        assert_eq!(of(canary("2", 1.0)).len(), tasks.len());
    }

    #[test]
    fn an_attempt_is_of_the_version_that_it_was_claimed_with() {
        let queue = |share: f64| -> Queue {
            let canary = doc! { "version": "2", "share": share, "began": DateTime::from_millis(5) };
            let queue = doc! { "_id": ObjectId::new(), "plugin": "Mail", "version": "1", "canary": canary };
            bson::deserialize_from_document(queue).unwrap()
        };
        let task = |fields: Document| -> Task {
            let mut task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0 };
            task.extend(fields);
            bson::deserialize_from_document(task).unwrap()
        };
        let is_canary = |queue: &Queue, task: &Task| Trial::of(queue, task).map(|trial| trial.is_canary);
        let all = queue(1.0);
        assert_eq!(is_canary(&all, &task(doc! { "plugin_version": "1" })), Some(false));
        assert_eq!(is_canary(&all, &task(doc! { "plugin_version": "2" })), Some(true));
        assert_eq!(is_canary(&all, &task(doc! {})), Some(true), "its runner goes by the queue");
        assert_eq!(is_canary(&Queue::without_document(all.id), &task(doc! {})), None);
        let needed: Vec<String> = all.needed_plugins().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(needed, ["Mail@1", "Mail@2"]);
    }
}
