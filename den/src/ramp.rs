//! How many tasks may be started in a second. Pure: times and numbers in, numbers and times out.
//!
//! What was started within the last second is remembered, so no second has more than that, wherever it begins.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the limit counts for.
const SECOND: Duration = Duration::from_secs(1);

/// Starts within the last second, and how many there may be.
#[derive(Debug, Clone)]
pub struct Ramp {
    /// `None`: as many as there are.
    limit: Option<u64>,
    /// When how many were started, in order.
    started: VecDeque<(Instant, u64)>,
}

impl Ramp {
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, started: VecDeque::new() }
    }

    /// Whether any number may be started at any time.
    pub fn is_unlimited(&self) -> bool {
        self.limit.is_none()
    }

    /// How many may be started at `now`.
    pub fn room(&self, now: Instant) -> u64 {
        let Some(limit) = self.limit else { return u64::MAX };
        let lately = self.started.iter().filter(|(at, _)| *at + SECOND > now);
        limit.saturating_sub(lately.map(|(_, tasks)| tasks).sum())
    }

    /// So many were started at `now`.
    pub fn began(&mut self, tasks: u64, now: Instant) {
        if self.limit.is_some() && tasks > 0 {
            self.forget(now);
            self.started.push_back((now, tasks));
        }
    }

    /// When the next may be started. `None`: now.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let oldest = self.started.iter().find(|(at, _)| *at + SECOND > now)?;
        (self.room(now) == 0).then_some(oldest.0 + SECOND)
    }

    /// Whether nothing of it matters any more.
    pub fn is_over(&self, now: Instant) -> bool {
        self.started.back().is_none_or(|(at, _)| *at + SECOND <= now)
    }

    fn forget(&mut self, now: Instant) {
        while self.started.front().is_some_and(|(at, _)| *at + SECOND <= now) {
            self.started.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_limit_all_may_start() {
        let now = Instant::now();
        let mut ramp = Ramp::new(None);
        ramp.began(1_000_000, now);
        assert_eq!((ramp.room(now), ramp.next(now)), (u64::MAX, None));
        assert!(ramp.is_over(now));
    }

    #[test]
    fn room_comes_back_a_second_after_it_was_used() {
        let now = Instant::now();
        let at = |millis: u64| now + Duration::from_millis(millis);
        let mut ramp = Ramp::new(Some(5));
        ramp.began(3, at(0));
        ramp.began(2, at(400));
        assert_eq!((ramp.room(at(400)), ramp.next(at(400))), (0, Some(at(1_000))));
        assert_eq!((ramp.room(at(999)), ramp.room(at(1_000)), ramp.next(at(1_000))), (0, 3, None));
        ramp.began(3, at(1_000));
        assert_eq!((ramp.room(at(1_000)), ramp.next(at(1_000))), (0, Some(at(1_400))));
        assert_eq!(ramp.room(at(1_400)), 2);
        assert!(!ramp.is_over(at(1_999)) && ramp.is_over(at(2_000)));
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_the_limit_and_each_that_wants_gets_it(
            limit in 1_u64..20,
            wishes in prop::collection::vec((0_u64..700, 0_u64..30), 1..60),
        ) {
            let begin = Instant::now();
            let (mut ramp, mut millis) = (Ramp::new(Some(limit)), 0);
            let mut started: Vec<(u64, u64)> = Vec::new();
            for (after, wanted) in wishes {
                millis += after;
                let now = begin + Duration::from_millis(millis);
                let within: u64 =
                    started.iter().filter(|(at, _)| at + 1_000 > millis).map(|(_, tasks)| tasks).sum();
                let room = ramp.room(now);
                prop_assert_eq!(room, limit - within);
                let tasks = wanted.min(room);
                ramp.began(tasks, now);
                started.push((millis, tasks));
                if let Some(next) = ramp.next(now) {
                    prop_assert_eq!(ramp.room(now), 0);
                    prop_assert!(next > now && ramp.room(next) > 0);
                    prop_assert_eq!(ramp.room(next - Duration::from_millis(1)), 0);
                }
            }
            for (from, _) in &started {
                let second = started.iter().filter(|(at, _)| (*from..from + 1_000).contains(at));
                prop_assert!(second.map(|(_, tasks)| tasks).sum::<u64>() <= limit);
            }
        }
    }
}
