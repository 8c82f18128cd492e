//! Which attempts of a queue's tasks are recorded.

use std::time::Duration;

use bson::{Bson, Document};
use disbatch_values::liberal::number;
use sha2::{Digest, Sha256};

use super::{Queue, TaskId};

/// The field of a queue that says it. Absent: none are.
pub const RECORD: &str = "record";

/// For how many days a recording is kept at most.
pub const LONGEST_KEPT: u32 = 3650;

/// For how long one is kept of a queue that does not say it: a week.
const KEPT: f64 = 7.0;

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
        queue.rest.get(RECORD).and_then(Bson::as_document).and_then(Self::from_document)
    }

    fn from_document(document: &Document) -> Option<Self> {
        let share = document.get("share").and_then(number).filter(|share| *share > 0.0 && *share <= 1.0)?;
        let keep = document.get("keep").map_or(Some(KEPT), number);
        let keep = keep.filter(|days| *days > 0.0 && *days <= f64::from(LONGEST_KEPT))?;
        Some(Self { share, keep: Duration::from_secs_f64(keep * DAY) })
    }

    /// Whether it has this attempt. The same for whoever asks: it follows from the ids.
    pub fn has(&self, task: TaskId, attempt: i64) -> bool {
        drawn([&task.0.bytes()[..], &attempt.to_be_bytes()]) < self.share
    }
}

/// A number from 0 on that these decide. It is below 1, so that a share of 1 has them all.
pub fn drawn(of: [&[u8]; 2]) -> f64 {
    let [one, other] = of;
    let sum = Sha256::new().chain_update(one).chain_update(other).finalize();
    let drawn = sum.iter().take(4).fold(0_u32, |drawn, byte| (drawn << 8) | u32::from(*byte));
    f64::from(drawn) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn what_makes_no_sense_is_no_recording() {
        let of = |document: Document| Sample::from_document(&document);
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
}
