//! How many tasks of which queue to claim next, and for which of its places. Pure: counts and limits in, a
//! sequence of claims out.

use std::collections::{BTreeSet, VecDeque};

use disbatch_core::model::QueueId;

/// So many places of a queue are tried in one round at most.
const MOST_PLACES: usize = 256;

/// A queue that this node serves, as it stands before a round of claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// The queue.
    pub queue: QueueId,
    /// How many of its tasks may run at once over all DENs.
    pub threads: u64,
    /// How many are claimed or running now, over all DENs.
    pub running: u64,
    /// The places that these have. Tasks that another program claimed have none.
    pub taken: Vec<u64>,
}

impl Demand {
    /// The places that may be tried: of those that are free and below `threads`, the lowest, as many as the
    /// limit leaves. DENs that see the same state choose from the same places, so that together they cannot
    /// claim more than that; this matters when `threads` has been lowered below a place that is taken.
    fn free(&self) -> impl Iterator<Item = u64> {
        let taken: BTreeSet<u64> = self.taken.iter().copied().collect();
        let left = usize::try_from(self.threads.saturating_sub(self.running)).unwrap_or(usize::MAX);
        (0..self.threads).filter(move |slot| !taken.contains(slot)).take(left.min(MOST_PLACES))
    }
}

/// A round of claims.
///
/// Queues take turns, one task at a time, so that a long queue leaves its share of the node to the others. A
/// queue leaves the round when its limit is reached or it has no more tasks; the round ends when no queue or
/// no room on the node is left.
#[derive(Debug)]
pub struct Round {
    room: u64,
    /// Queues that still have free places, with these.
    open: Vec<(QueueId, VecDeque<u64>)>,
    turn: usize,
}

impl Round {
    /// A round on a node that runs `running` tasks of at most `maxthreads` (`None`: no limit). `first` says
    /// whose turn it is, so that successive rounds can begin with different queues; `spread`, which nodes
    /// choose at random, keeps them from trying the same places in the same order.
    pub fn new(
        maxthreads: Option<u64>,
        running: u64,
        demands: &[Demand],
        first: usize,
        spread: usize,
    ) -> Self {
        let room = maxthreads.map_or(u64::MAX, |limit| limit.saturating_sub(running));
        let places = |demand: &Demand| {
            let mut free: VecDeque<u64> = demand.free().collect();
            let by = spread.checked_rem(free.len()).unwrap_or(0);
            free.rotate_left(by);
            (demand.queue, free)
        };
        let mut open: Vec<_> = demands.iter().map(places).filter(|(_, free)| !free.is_empty()).collect();
        let by = first.checked_rem(open.len()).unwrap_or(0);
        open.rotate_left(by);
        Self { room, open, turn: 0 }
    }

    /// The queue to claim from next, and the place. Tell what came of it with [`Round::claimed`],
    /// [`Round::place_taken`] or [`Round::nothing_there`].
    pub fn next(&self) -> Option<(QueueId, u64)> {
        if self.room == 0 {
            return None;
        }
        let (queue, free) = self.open.get(self.turn)?;
        free.front().map(|slot| (*queue, *slot))
    }

    /// A task of the queue whose turn it was has been claimed.
    pub fn claimed(&mut self) {
        self.room = self.room.saturating_sub(1);
        let queues = self.open.len();
        self.place_taken();
        if self.open.len() == queues && queues > 0 {
            self.turn = (self.turn + 1) % queues;
        }
    }

    /// Another node has the place. The queue's turn goes on with the next place.
    pub fn place_taken(&mut self) {
        if let Some((_, free)) = self.open.get_mut(self.turn) {
            free.pop_front();
            if free.is_empty() {
                self.nothing_there();
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

    /// Claims nothing more of `queue` in this round.
    pub fn leave(&mut self, queue: QueueId) {
        if let Some(at) = self.open.iter().position(|(id, _)| *id == queue) {
            self.open.remove(at);
            if at < self.turn {
                self.turn -= 1;
            }
            if self.turn >= self.open.len() {
                self.turn = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

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
                taken: (0..*running).collect(),
            })
            .collect();
        let mut waiting: HashMap<QueueId, u64> =
            (0u8..).zip(queues).map(|(number, (_, _, waiting))| (queue(number), *waiting)).collect();
        let mut round = Round::new(maxthreads, running, &demands, first, first * 3);
        let mut claimed = Vec::new();
        let mut places = HashSet::new();
        while let Some((queue, place)) = round.next() {
            match waiting.get_mut(&queue) {
                Some(left) if *left > 0 => {
                    assert!(places.insert((queue, place)), "a place is used once");
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

    fn demand(threads: u64, running: u64, taken: &[u64]) -> Demand {
        Demand { queue: queue(1), threads, running, taken: taken.to_vec() }
    }

    #[test]
    fn after_threads_was_lowered_only_what_the_limit_leaves_may_be_tried() {
        let free = |demand: Demand| demand.free().collect::<Vec<_>>();
        assert_eq!(free(demand(5, 2, &[0, 3])), [1, 2, 4]);
        assert_eq!(free(demand(2, 1, &[4])), [0], "one runs above the limit: one place is left, not two");
        assert_eq!(free(demand(2, 2, &[1, 4])), Vec::<u64>::new());
        assert_eq!(free(demand(3, 1, &[])), [0, 1], "another program's task has no place");
        assert_eq!(free(demand(u64::MAX, 1, &[0])).len(), MOST_PLACES);
    }

    #[test]
    fn a_place_that_is_taken_costs_the_queue_nothing_else() {
        let mut round = Round::new(None, 0, &[demand(3, 0, &[])], 0, 1);
        assert_eq!(round.next(), Some((queue(1), 1)));
        round.place_taken();
        assert_eq!(round.next(), Some((queue(1), 2)));
        round.claimed();
        assert_eq!(round.next(), Some((queue(1), 0)));
        round.leave(queue(1));
        assert_eq!(round.next(), None);
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
