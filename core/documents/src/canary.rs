//! Canaries: a part of a queue's tasks is run by another version of its plugin, to see how that does.

use bson::{Bson, DateTime, Document};
use disbatch_values::liberal::number;
use serde::{Deserialize, Serialize};

use super::drawn;
use super::{Queue, Task, TaskId, Version};

/// The field of a queue with its canary. Absent: it has none.
pub const CANARY: &str = "canary";

/// The field of a queue that says why its last canary was taken back. It goes when another version is pinned or tried.
pub const CANARY_RETURNED: &str = "canary_returned";

/// When it began, in the field.
pub const BEGAN: &str = "began";

/// What a queue tries.
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
        queue.rest.get(CANARY).and_then(Bson::as_document).and_then(Self::from_document)
    }

    fn from_document(document: &Document) -> Option<Self> {
        Some(Self {
            version: document.get_str("version").ok()?.parse().ok()?,
            share: document.get("share").and_then(number).filter(|share| *share > 0.0 && *share <= 1.0)?,
            // Somebody has written it by hand.
            began: document.get_datetime(BEGAN).copied().unwrap_or(DateTime::from_millis(0)),
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
    /// When the canary began.
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

    fn canary(version: &str, share: f64) -> Canary {
        Canary { version: version.parse().unwrap(), share, began: DateTime::from_millis(5) }
    }

    #[test]
    fn what_makes_no_sense_is_no_canary() {
        let of = |document: Document| Canary::from_document(&document);
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
