//! How many tasks of which queue to claim next, and for which of its places. Pure: counts and limits in, a
//! sequence of claims out.

use std::collections::HashSet;

use disbatch_core::model::QueueId;

/// A queue that this node serves, as it stands before a round of claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub queue: QueueId,
    /// How many of its tasks may run at once over all DENs.
    pub threads: u64,
    /// How many are claimed or running now, over all DENs.
    pub running: u64,
    /// The places that these have. Tasks that another program claimed have none.
    pub taken: Vec<u64>,
    /// How many may be started now, whatever runs.
    pub starts: u64,
}

impl Demand {
    /// Whether `slot` is one of the places that may be tried.
    pub fn leaves(&self, slot: u64) -> bool {
        Places::of(self, 0).has(slot)
    }
}

/// The places of a queue that may be tried, in the order of trying.
///
/// These are, of those that are free and below `threads`, the lowest, as many as the limit leaves. DENs that see the
/// same state choose from the same places, so that together they cannot claim more than that; this matters when
/// `threads` has been lowered below a place that is taken. Each tries them in an order of its own, which depends on
/// `spread`: where one begins, and in which steps it goes through all of them.
#[derive(Debug)]
struct Places {
    /// Places that are taken, in order.
    taken: Vec<u64>,
    /// How many may be tried.
    allowed: u64,
    /// How many have been.
    tried: u64,
    first: u64,
    step: u64,
    /// Places that come next: those that were not tried after all, and preferred ones.
    back: Vec<u64>,
    /// Preferred places that are not to come again in their turn.
    preferred: HashSet<u64>,
}

impl Places {
    fn of(demand: &Demand, spread: u64) -> Self {
        let mut taken: Vec<u64> =
            demand.taken.iter().copied().filter(|slot| *slot < demand.threads).collect();
        taken.sort_unstable();
        taken.dedup();
        let busy = demand.running.max(u64::try_from(taken.len()).unwrap_or(u64::MAX));
        let allowed = demand.threads.saturating_sub(busy);
        let first = spread.checked_rem(allowed).unwrap_or(0);
        // Far from `spread`, so that those that begin near each other go different ways.
        let step = spread.wrapping_mul(0x9E37_79B9_7F4A_7C15).checked_rem(allowed).unwrap_or(0).max(1);
        // With a step that has no common divisor with it, all numbers below `allowed` are met once.
        let step = (1..=step).rev().find(|step| divisor(*step, allowed) == 1).unwrap_or(1);
        Self { taken, allowed, tried: 0, first, step, back: Vec::new(), preferred: HashSet::new() }
    }

    fn left(&self) -> u64 {
        let untried = self.allowed - self.tried - self.preferred.len() as u64;
        untried + self.back.len() as u64
    }

    /// Whether `slot` is one of those that may be tried.
    fn has(&self, slot: u64) -> bool {
        let below = self.taken.partition_point(|taken| *taken < slot);
        let free_below = slot - u64::try_from(below).unwrap_or(slot);
        self.taken.get(below) != Some(&slot) && free_below < self.allowed
    }

    /// Has those of `slots` that may be tried come before all others.
    fn prefer(&mut self, slots: impl IntoIterator<Item = u64>) {
        for slot in slots {
            if self.has(slot) && self.preferred.insert(slot) {
                self.back.push(slot);
            }
        }
    }

    fn next(&mut self) -> Option<u64> {
        if let Some(back) = self.back.pop() {
            return Some(back);
        }
        while self.tried < self.allowed {
            let far = u128::from(self.first) + u128::from(self.tried) * u128::from(self.step);
            self.tried += 1;
            let slot = self.free(u64::try_from(far % u128::from(self.allowed)).ok()?);
            if !self.preferred.remove(&slot) {
                return Some(slot);
            }
        }
        None
    }

    /// The free place that has so many free ones below it.
    fn free(&self, number: u64) -> u64 {
        let (mut low, mut high) = (0, self.taken.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let taken_below = u64::try_from(middle).unwrap_or(u64::MAX);
            if self.taken[middle] - taken_below <= number { low = middle + 1 } else { high = middle }
        }
        number + u64::try_from(low).unwrap_or(0)
    }
}

fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// A queue that still has places to try.
#[derive(Debug)]
struct Open {
    queue: QueueId,
    places: Places,
    /// How many of its tasks may still be claimed.
    starts: u64,
}

impl Open {
    fn is_done(&self) -> bool {
        self.starts == 0 || self.places.left() == 0
    }
}

/// A round of claims.
///
/// Queues take turns, each for the same number of tasks, so that a long queue leaves its share of the node to the
/// others. A queue leaves the round when its limit is reached or it has no more tasks; the round ends when no
/// queue or no room on the node is left.
#[derive(Debug)]
pub struct Round {
    room: u64,
    open: Vec<Open>,
    turn: usize,
    /// How many tasks a turn is for.
    share: u64,
    /// How many of them the queue whose turn it is has had.
    had: u64,
}

impl Round {
    /// A round on a node that runs `running` tasks of at most `maxthreads` (`None`: no limit). `first` says
    /// whose turn it is, so that successive rounds can begin with different queues; `spread`, another
    /// number for each DEN, keeps them from trying the same places in the same order.
    pub fn new(maxthreads: Option<u64>, running: u64, demands: &[Demand], first: usize, spread: u64) -> Self {
        let room = maxthreads.map_or(u64::MAX, |limit| limit.saturating_sub(running));
        let places = |demand: &Demand| Open {
            queue: demand.queue,
            places: Places::of(demand, spread),
            starts: demand.starts,
        };
        let mut open: Vec<Open> = demands.iter().map(places).filter(|open| !open.is_done()).collect();
        let by = first.checked_rem(open.len()).unwrap_or(0);
        open.rotate_left(by);
        Self { room, open, turn: 0, share: 0, had: 0 }
    }

    /// The same, of which the node starts so many at most.
    pub fn of_at_most(self, starts: u64) -> Self {
        Self { room: self.room.min(starts), ..self }
    }

    /// These places of a queue come first, as far as they may be tried.
    pub fn prefer(&mut self, queue: QueueId, slots: impl IntoIterator<Item = u64>) {
        if let Some(open) = self.open.iter_mut().find(|open| open.queue == queue) {
            open.places.prefer(slots);
        }
    }

    /// These queues come first, in the order that they have here.
    pub fn begin_with(&mut self, queues: &HashSet<QueueId>) {
        self.open.sort_by_key(|open| !queues.contains(&open.queue));
    }

    /// The queues whose turn is still to come, before all have had as many; none where there is no room.
    pub fn to_come(&self) -> HashSet<QueueId> {
        let to_come = self.open.iter().skip(self.turn).filter(|_| self.room > 0);
        to_come.map(|open| open.queue).collect()
    }

    /// The queue to claim from next, and places for its tasks, `most` of them at most. Tell what came of it with
    /// [`Round::claimed`].
    pub fn next_batch(&mut self, most: usize) -> Option<(QueueId, Vec<u64>)> {
        let most = u64::try_from(most).unwrap_or(u64::MAX).min(self.room);
        let queues = u64::try_from(self.open.len()).unwrap_or(u64::MAX);
        if most == 0 || queues == 0 {
            return None;
        }
        if self.turn == 0 && self.had == 0 {
            self.share = (most / queues).max(1);
        }
        let open = self.open.get_mut(self.turn)?;
        let wanted = (self.share - self.had).min(most).min(open.starts);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let slots: Vec<u64> = std::iter::from_fn(|| open.places.next()).take(wanted).collect();
        Some((open.queue, slots))
    }

    /// These places of the queue whose turn it is are not tried now: they come next.
    pub fn put_back(&mut self, slots: &[u64]) {
        if let Some(open) = self.open.get_mut(self.turn) {
            open.places.back.extend(slots.iter().rev());
        }
    }

    /// So many tasks of the queue whose turn it was have been claimed. `more`: it may have more to claim. Without
    /// that it leaves the round.
    pub fn claimed(&mut self, tasks: usize, more: bool) {
        let tasks = u64::try_from(tasks).unwrap_or(u64::MAX);
        self.room = self.room.saturating_sub(tasks);
        self.had += tasks;
        let Some(open) = self.open.get_mut(self.turn) else { return };
        open.starts = open.starts.saturating_sub(tasks);
        if !more || open.is_done() {
            let queue = open.queue;
            self.leave(queue);
        } else if self.had >= self.share {
            self.next_turn(self.turn + 1);
        }
    }

    /// Claims nothing more of `queue` in this round.
    pub fn leave(&mut self, queue: QueueId) {
        let Some(at) = self.open.iter().position(|open| open.queue == queue) else { return };
        self.open.remove(at);
        match at.cmp(&self.turn) {
            std::cmp::Ordering::Less => self.turn -= 1,
            std::cmp::Ordering::Equal => self.next_turn(at),
            std::cmp::Ordering::Greater => {}
        }
    }

    fn next_turn(&mut self, turn: usize) {
        self.turn = if turn < self.open.len() { turn } else { 0 };
        self.had = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;

    fn queue(number: u8) -> QueueId {
        QueueId([number; 12].into())
    }

    /// Plays a round in which each queue has so many tasks waiting. Returns what was claimed, in order.
    fn play(
        (maxthreads, running): (Option<u64>, u64),
        queues: &[(u64, u64, u64)],
        first: usize,
        most: usize,
    ) -> Vec<QueueId> {
        let demands: Vec<Demand> = (0u8..)
            .zip(queues)
            .map(|(number, (threads, running, _))| Demand {
                queue: queue(number),
                threads: *threads,
                running: *running,
                taken: (0..*running).collect(),
                starts: u64::MAX,
            })
            .collect();
        let mut waiting: HashMap<QueueId, u64> =
            (0u8..).zip(queues).map(|(number, (_, _, waiting))| (queue(number), *waiting)).collect();
        let mut round = Round::new(maxthreads, running, &demands, first, first as u64 * 3);
        let mut claimed = Vec::new();
        let mut places = HashSet::new();
        while let Some((queue, slots)) = round.next_batch(most) {
            assert!(!slots.is_empty() && slots.len() <= most, "{slots:?}");
            let left = waiting.get_mut(&queue).unwrap();
            let tasks = slots.len().min(usize::try_from(*left).unwrap());
            assert!(slots.iter().all(|slot| places.insert((queue, *slot))), "a place is tried once");
            *left -= tasks as u64;
            claimed.extend(vec![queue; tasks]);
            round.claimed(tasks, *left > 0);
        }
        claimed
    }

    #[test]
    fn queues_take_turns() {
        let claimed = play((Some(5), 0), &[(9, 0, 9), (9, 0, 1), (9, 0, 9)], 0, 1);
        assert_eq!(claimed, [queue(0), queue(1), queue(2), queue(0), queue(2)]);
        let claimed = play((Some(2), 0), &[(9, 0, 9), (9, 0, 1), (9, 0, 9)], 2, 8);
        assert_eq!(claimed, [queue(2), queue(0)]);
        let claimed = play((Some(5), 0), &[(9, 0, 9), (9, 0, 9)], 0, 4);
        assert_eq!(claimed, [queue(0), queue(0), queue(1), queue(1), queue(0)]);
    }

    #[test]
    fn a_round_that_is_broken_off_is_gone_on_with() {
        let demands: Vec<Demand> =
            (0..5).map(|number| Demand { queue: queue(number), ..demand(100, 0, &[]) }).collect();
        let mut round = Round::new(None, 0, &demands, 0, 0);
        assert_eq!(round.to_come().len(), 5);
        for (expected, (tasks, more)) in [(0, (12, true)), (1, (0, false)), (2, (12, true))] {
            assert_eq!(round.next_batch(64).map(|(id, _)| id), Some(queue(expected)));
            round.claimed(tasks, more);
        }
        assert_eq!(round.to_come(), HashSet::from([queue(3), queue(4)]));
        let mut next = Round::new(None, 0, &demands, 1, 0);
        next.begin_with(&round.to_come());
        let order: Vec<QueueId> = next.open.iter().map(|open| open.queue).collect();
        assert_eq!(order, [3, 4, 1, 2, 0].map(queue));
        assert!(Round::new(Some(3), 3, &demands, 0, 0).to_come().is_empty(), "there is no room");
    }

    #[test]
    fn a_full_or_overfull_node_claims_nothing() {
        assert!(play((Some(3), 3), &[(9, 0, 9)], 0, 8).is_empty());
        assert!(play((Some(3), 7), &[(9, 0, 9)], 0, 8).is_empty());
        assert!(play((Some(0), 0), &[(9, 0, 9)], 0, 8).is_empty());
        assert_eq!(play((None, 1_000_000), &[(2, 0, 9)], 0, 8).len(), 2);
    }

    fn demand(threads: u64, running: u64, taken: &[u64]) -> Demand {
        Demand { queue: queue(1), threads, running, taken: taken.to_vec(), starts: u64::MAX }
    }

    fn places(demand: &Demand, spread: u64, most: usize) -> Vec<u64> {
        let mut places = Places::of(demand, spread);
        std::iter::from_fn(|| places.next()).take(most).collect()
    }

    #[test]
    fn after_threads_was_lowered_only_what_the_limit_leaves_may_be_tried() {
        for spread in 0..100 {
            let free = |demand: Demand| {
                let mut free = places(&demand, spread, 100);
                free.sort_unstable();
                free
            };
            assert_eq!(free(demand(5, 2, &[0, 3])), [1, 2, 4]);
            assert_eq!(free(demand(2, 1, &[4])), [0], "one runs above the limit: one place is left, not two");
            assert_eq!(free(demand(2, 2, &[1, 4])), Vec::<u64>::new());
            assert_eq!(free(demand(3, 1, &[])), [0, 1], "another program's task has no place");
            for state in [demand(5, 2, &[0, 3]), demand(2, 1, &[4]), demand(2, 2, &[1, 4]), demand(3, 1, &[])]
            {
                let left: Vec<u64> = (0..9).filter(|slot| state.leaves(*slot)).collect();
                assert_eq!(left, free(state));
            }
        }
        assert_eq!(places(&demand(u64::MAX, 1, &[0]), 5, 100).len(), 100);
    }

    #[test]
    fn preferred_places_come_first_and_each_place_once() {
        let state = demand(9, 3, &[0, 3, 4]);
        let mut places = Places::of(&state, 5);
        places.prefer([7, 3, 2, 7, 40]);
        assert_eq!(places.left(), 6);
        let tried: Vec<u64> = std::iter::from_fn(|| places.next()).collect();
        assert_eq!(tried[..2], [2, 7], "3 is taken, and there is no 40");
        assert_eq!(tried.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 5, 6, 7, 8]));
        assert_eq!((tried.len(), places.left()), (6, 0));
    }

    #[test]
    fn those_that_see_the_same_state_do_not_try_the_same_places() {
        let state = demand(5_000, 100, &(0..100).collect::<Vec<_>>());
        let tried: Vec<u64> = (0..50).flat_map(|den| places(&state, den * 7_919 + 13, 64)).collect();
        let places: HashSet<u64> = tried.iter().copied().collect();
        // 3,200 throws at 4,900 places hit 2,350 of them on average.
        assert!(places.len() > 2_000, "{} of {} places", places.len(), tried.len());
        assert!(places.iter().any(|place| *place > 4_500));
    }

    #[test]
    fn what_others_took_costs_the_queue_its_places_and_nothing_else() {
        let mut round = Round::new(None, 0, &[demand(3, 0, &[])], 0, 1);
        let (_, first) = round.next_batch(2).unwrap();
        round.claimed(0, true);
        let (_, second) = round.next_batch(2).unwrap();
        round.claimed(1, true);
        assert_eq!(round.next_batch(2), None);
        let mut all = [first, second].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        let mut round = Round::new(None, 0, &[demand(3, 0, &[])], 0, 1);
        round.leave(queue(1));
        assert_eq!(round.next_batch(2), None);
    }

    #[test]
    fn places_that_were_not_tried_come_next() {
        let mut round = Round::new(None, 0, &[demand(4, 0, &[])], 0, 0);
        let (_, slots) = round.next_batch(64).unwrap();
        assert_eq!(slots.len(), 4);
        round.put_back(&slots[1..]);
        round.claimed(1, true);
        assert_eq!(round.next_batch(64).unwrap().1, slots[1..]);
        round.claimed(3, true);
        assert_eq!(round.next_batch(64), None);
    }

    #[test]
    fn no_more_are_claimed_than_may_be_started() {
        let limited = |starts| Demand { starts, ..demand(9, 0, &[]) };
        let mut round = Round::new(None, 0, &[limited(3)], 0, 1);
        assert_eq!(round.next_batch(2).map(|(_, slots)| slots.len()), Some(2));
        round.claimed(2, true);
        assert_eq!(round.next_batch(2).map(|(_, slots)| slots.len()), Some(1));
        round.claimed(0, true);
        assert_eq!(round.next_batch(2).map(|(_, slots)| slots.len()), Some(1), "the start was not used");
        round.claimed(1, true);
        assert_eq!(round.next_batch(2), None);
        assert_eq!(Round::new(None, 0, &[limited(0)], 0, 1).next_batch(2), None);
        let mut round = Round::new(Some(9), 0, &[limited(u64::MAX)], 0, 1).of_at_most(4);
        assert_eq!(round.next_batch(64).map(|(_, slots)| slots.len()), Some(4));
        round.claimed(4, true);
        assert_eq!(round.next_batch(64), None);
    }

    #[test]
    fn a_queue_that_may_start_nothing_more_leaves_the_room_to_others() {
        let other = |starts| Demand { queue: queue(2), starts, ..demand(9, 0, &[]) };
        let first = Demand { starts: 1, ..demand(9, 0, &[]) };
        let mut round = Round::new(Some(6), 0, &[first, other(u64::MAX)], 0, 1);
        let mut claimed = HashMap::new();
        while let Some((queue, slots)) = round.next_batch(6) {
            *claimed.entry(queue).or_insert(0) += slots.len();
            round.claimed(slots.len(), true);
        }
        assert_eq!(claimed, HashMap::from([(queue(1), 1), (queue(2), 5)]));
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
            most in 1usize..20,
        ) {
            let claimed = play((maxthreads, running), &queues, first, most);
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
            most in 1usize..50,
        ) {
            let queues = vec![(100, 0, 100); count];
            let claimed = play((Some(room), 0), &queues, first, most);
            let shares: Vec<usize> = (0..count)
                .map(|number| claimed.iter().filter(|id| **id == queue(u8::try_from(number).unwrap())).count())
                .collect();
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }

        #[test]
        fn the_places_of_any_two_dens_are_the_same_set(
            threads in 0u64..60,
            others in 0u64..10,
            taken in prop::collection::btree_set(0u64..80, 0..40),
            spreads in (any::<u64>(), any::<u64>()),
        ) {
            let state = demand(threads, taken.len() as u64 + others, &taken.iter().copied().collect::<Vec<_>>());
            let set = |spread| places(&state, spread, usize::MAX).into_iter().collect::<BTreeSet<u64>>();
            let left = threads.saturating_sub(state.running);
            let lowest: BTreeSet<u64> =
                (0..threads).filter(|slot| !taken.contains(slot)).take(usize::try_from(left).unwrap()).collect();
            prop_assert_eq!(&set(spreads.0), &lowest);
            prop_assert_eq!(set(spreads.1), lowest);
        }
    }
}
