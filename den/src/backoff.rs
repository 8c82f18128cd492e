//! Growing pauses between attempts at something that fails.

use std::time::{Duration, Instant};

/// Doubles the pause after each failure, up to a longest one, and forgets all about it after a success.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    pause: Duration,
    until: Option<Instant>,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pause: first, until: None }
    }

    /// Something failed at `now`. Returns the pause before it should be tried again.
    ///
    /// Failures within a pause belong to the one that began it: ten launches that fail together do not make
    /// the pause a thousand times longer.
    pub fn failed(&mut self, now: Instant) -> Duration {
        if let Some(left) = self.left(now) {
            return left;
        }
        let pause = self.pause;
        self.until = Some(now + pause);
        self.pause = (pause * 2).min(self.longest);
        pause
    }

    pub fn worked(&mut self) {
        self.pause = self.first;
        self.until = None;
    }

    /// How long to wait still at `now`, `None` if it may be tried again.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let mut now = Instant::now();
        assert_eq!(backoff.left(now), None);
        for expected in [1, 2, 4, 5, 5] {
            assert_eq!(backoff.failed(now), Duration::from_secs(expected));
            assert_eq!(backoff.left(now), Some(Duration::from_secs(expected)));
            now += Duration::from_secs(expected);
            assert_eq!(backoff.left(now), None);
        }
        backoff.worked();
        assert_eq!(backoff.failed(now), Duration::from_secs(1));
    }

    #[test]
    fn failures_within_a_pause_count_once() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let now = Instant::now();
        backoff.failed(now);
        let later = now + Duration::from_millis(400);
        assert_eq!(backoff.failed(later), Duration::from_millis(600));
        assert_eq!(backoff.failed(now + Duration::from_secs(1)), Duration::from_secs(2));
    }
}
