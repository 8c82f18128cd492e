//! Moves of tasks, added up. Pure.

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Document, doc};

use crate::model::Status;

/// Statuses beyond these count as these, so that plugins that invent them do not fill the counters.
const FIRST: i64 = -16;
const LAST: i64 = 256;

/// The status whose counter a task is in. `None`: none is kept.
pub(super) fn counter_of(status: i64) -> Option<i64> {
    (!matches!(status, -1 | 0)).then(|| status.clamp(FIRST, LAST))
}

/// Matches the statuses of a counter.
pub(super) fn statuses_of(counter: i64) -> Document {
    match counter {
        FIRST => doc! { "$lte": FIRST },
        LAST => doc! { "$gte": LAST },
        status => doc! { "$eq": status },
    }
}

/// What has moved since the last flush.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Deltas {
    queues: BTreeMap<ObjectId, OfQueue>,
    /// Something may have moved that is not among them.
    pub(super) doubt: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OfQueue {
    net: BTreeMap<i64, i64>,
    moves: i64,
}

impl Deltas {
    pub(super) fn moved(&mut self, queue: ObjectId, from: Option<Status>, to: Option<Status>, tasks: u64) {
        self.add(queue, from.map(Status::code), to.map(Status::code), tasks);
    }

    fn add(&mut self, queue: ObjectId, from: Option<i64>, to: Option<i64>, tasks: u64) {
        let (from, to) = (from.and_then(counter_of), to.and_then(counter_of));
        if tasks == 0 || from == to {
            return;
        }
        let tasks = i64::try_from(tasks).unwrap_or(i64::MAX);
        let of_queue = self.queues.entry(queue).or_default();
        of_queue.moves += tasks;
        for (counter, change) in [(from, -tasks), (to, tasks)] {
            if let Some(counter) = counter {
                *of_queue.net.entry(counter).or_default() += change;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && !self.doubt
    }

    /// The fields to be increased, and by how much.
    pub(super) fn increments(&self) -> Document {
        let mut fields = Document::new();
        for (queue, of_queue) in &self.queues {
            let queue = queue.to_hex();
            fields.insert(format!("q.{queue}.m"), of_queue.moves);
            for (counter, change) in of_queue.net.iter().filter(|(_, change)| **change != 0) {
                fields.insert(format!("q.{queue}.n.{counter}"), *change);
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue() -> ObjectId {
        ObjectId::from_bytes([7; 12])
    }

    #[test]
    fn moves_add_up_to_what_is_left_of_them() {
        let mut deltas = Deltas::default();
        deltas.moved(queue(), None, Some(Status::Queued), 5);
        deltas.moved(queue(), Some(Status::Queued), Some(Status::Claimed), 5);
        deltas.moved(queue(), Some(Status::Claimed), Some(Status::Running), 5);
        deltas.moved(queue(), Some(Status::Running), Some(Status::Succeeded), 4);
        let hex = queue().to_hex();
        let expected = doc! { format!("q.{hex}.m"): 14_i64, format!("q.{hex}.n.1"): 4_i64 };
        assert_eq!(deltas.increments(), expected, "claims and starts of running tasks are not counted");
    }

    proptest! {
        /// What is in counters after some moves is what is there: no more than has moved.
        #[test]
        fn no_more_is_counted_than_has_moved(
            moves in proptest::collection::vec((-20_i64..300, -20_i64..300, 1_u64..5), 0..40),
        ) {
            let mut whole = Deltas::default();
            for (from, to, tasks) in moves {
                let (from, to) = (Some(Status::from_code(from)), Some(Status::from_code(to)));
                whole.moved(queue(), from, to, tasks);
            }
            let net: i64 = whole.queues.values().flat_map(|of| of.net.values()).sum();
            let moves: i64 = whole.queues.values().map(|of| of.moves).sum();
            prop_assert!(net.abs() <= moves);
        }

        #[test]
        fn every_status_has_one_counter_but_those_that_run(status in any::<i64>()) {
            prop_assert_eq!(counter_of(status).is_none(), status == -1 || status == 0);
            if let Some(counter) = counter_of(status) {
                prop_assert_eq!(counter_of(counter), Some(counter));
                prop_assert_eq!(counter <= -2, status <= -2, "a counter is of one phase");
            }
        }
    }
}
