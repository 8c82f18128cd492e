//! How many tasks of which queue to claim next. Pure: counts and limits in, a sequence of claims out.

use disbatch_core::model::QueueId;

/// A queue that this node serves, as it stands before a round of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The queue.
    pub queue: QueueId,
    /// How many of its tasks may run at once over all DENs.
    pub threads: u64,
    /// How many are claimed or running now, over all DENs.
    pub running: u64,
}

/// A round of claims.
///
/// Queues take turns, one task at a time, so that a long queue leaves its share of the node to the others. A
/// queue leaves the round when its limit is reached or it has no more tasks; the round ends when no queue or
/// no room on the node is left.
#[derive(Debug)]
pub struct Round {
    room: u64,
    /// Queues that still have room, with how much.
    open: Vec<(QueueId, u64)>,
    turn: usize,
}

impl Round {
    /// A round on a node that runs `running` tasks of at most `maxthreads` (`None`: no limit). `first` says
    /// whose turn it is, so that successive rounds can begin with different queues.
    pub fn new(maxthreads: Option<u64>, running: u64, demands: &[Demand], first: usize) -> Self {
        let room = maxthreads.map_or(u64::MAX, |limit| limit.saturating_sub(running));
        let mut open: Vec<_> = demands
            .iter()
            .map(|demand| (demand.queue, demand.threads.saturating_sub(demand.running)))
            .filter(|(_, room)| *room > 0)
            .collect();
        if !open.is_empty() {
            let first = first % open.len();
            open.rotate_left(first);
        }
        Self { room, open, turn: 0 }
    }

    /// The queue to claim from next. Tell what came of it with [`Round::claimed`] or [`Round::nothing_there`].
    pub fn next(&self) -> Option<QueueId> {
        if self.room == 0 {
            return None;
        }
        self.open.get(self.turn).map(|(queue, _)| *queue)
    }

    /// A task of the queue whose turn it was has been claimed.
    pub fn claimed(&mut self) {
        self.room = self.room.saturating_sub(1);
        if let Some((_, room)) = self.open.get_mut(self.turn) {
            *room -= 1;
            if *room == 0 {
                self.nothing_there();
            } else {
                self.turn = (self.turn + 1) % self.open.len();
            }
        }
    }

    /// The queue whose turn it was has no task to claim.
    pub fn nothing_there(&mut self) {
        if self.turn < self.open.len() {
            self.open.remove(self.turn);
        }
        if self.turn >= self.open.len() {
            self.turn = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn queue(number: u8) -> QueueId {
        QueueId([number; 12].into())
    }

    /// Plays a round in which each queue has so many tasks waiting. Returns what was claimed, in order.
    fn play(maxthreads: Option<u64>, running: u64, queues: &[(u64, u64, u64)], first: usize) -> Vec<QueueId> {
        let demands: Vec<Demand> = (0u8..)
            .zip(queues)
            .map(|(number, (threads, running, _))| Demand {
                queue: queue(number),
                threads: *threads,
                running: *running,
            })
            .collect();
        let mut waiting: HashMap<QueueId, u64> =
            (0u8..).zip(queues).map(|(number, (_, _, waiting))| (queue(number), *waiting)).collect();
        let mut round = Round::new(maxthreads, running, &demands, first);
        let mut claimed = Vec::new();
        while let Some(queue) = round.next() {
            match waiting.get_mut(&queue) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    claimed.push(queue);
                    round.claimed();
                }
                _ => round.nothing_there(),
            }
        }
        claimed
    }

    #[test]
    fn queues_take_turns() {
        let claimed = play(Some(5), 0, &[(9, 0, 9), (9, 0, 1), (9, 0, 9)], 0);
        assert_eq!(claimed, [queue(0), queue(1), queue(2), queue(0), queue(2)]);
        let claimed = play(Some(2), 0, &[(9, 0, 9), (9, 0, 1), (9, 0, 9)], 2);
        assert_eq!(claimed, [queue(2), queue(0)]);
    }

    #[test]
    fn a_full_or_overfull_node_claims_nothing() {
        assert!(play(Some(3), 3, &[(9, 0, 9)], 0).is_empty());
        assert!(play(Some(3), 7, &[(9, 0, 9)], 0).is_empty());
        assert!(play(Some(0), 0, &[(9, 0, 9)], 0).is_empty());
        assert_eq!(play(None, 1_000_000, &[(2, 0, 9)], 0).len(), 2);
    }

    fn any_queue() -> impl Strategy<Value = (u64, u64, u64)> {
        (0u64..12, 0u64..14, 0u64..12)
    }

    proptest! {
        #[test]
        fn limits_are_kept_and_nothing_is_left_idle(
            maxthreads in prop::option::of(0u64..30),
            running in 0u64..30,
            queues in prop::collection::vec(any_queue(), 0..6),
            first in 0usize..10,
        ) {
            let claimed = play(maxthreads, running, &queues, first);
            let room = maxthreads.map_or(u64::MAX, |limit| limit.saturating_sub(running));
            let mut possible = 0;
            for (number, (threads, busy, waiting)) in (0u8..).zip(&queues) {
                let free = threads.saturating_sub(*busy);
                let mine = claimed.iter().filter(|id| **id == queue(number)).count() as u64;
                prop_assert!(mine <= free, "threads exceeded");
                prop_assert!(mine <= *waiting);
                possible += free.min(*waiting);
            }
            let claimed = claimed.len() as u64;
            prop_assert!(claimed <= room, "maxthreads exceeded");
            prop_assert_eq!(claimed, room.min(possible), "work conserving");
        }

        #[test]
        fn shares_differ_by_at_most_one_between_queues_that_wait(
            room in 0u64..40,
            count in 1usize..6,
            first in 0usize..10,
        ) {
            let queues = vec![(100, 0, 100); count];
            let claimed = play(Some(room), 0, &queues, first);
            let shares: Vec<usize> = (0..count)
                .map(|number| claimed.iter().filter(|id| **id == queue(u8::try_from(number).unwrap())).count())
                .collect();
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
