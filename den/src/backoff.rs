//! Growing pauses between attempts at something that fails.

use std::time::Duration;

use tokio::time::Instant;

/// Doubles the pause after each failure, up to a longest one, and forgets all about it after a success.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    pause: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// No pause yet.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pause: first, until: None }
    }

    /// Something failed. Returns the pause before it should be tried again.
    ///
    /// Failures within a pause belong to the one that began it: ten launches that fail together do not make
    /// the pause a thousand times longer.
    pub fn failed(&mut self) -> Duration {
        if let Some(left) = self.left() {
            return left;
        }
        let pause = self.pause;
        self.until = Some(Instant::now() + pause);
        self.pause = (pause * 2).min(self.longest);
        pause
    }

    /// It worked.
    pub fn worked(&mut self) {
        self.pause = self.first;
        self.until = None;
    }

    /// How long to wait still, `None` if it may be tried now.
    pub fn left(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_end_with_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        assert_eq!(backoff.left(), None);
        for expected in [1, 2, 4, 5, 5] {
            assert_eq!(backoff.failed(), Duration::from_secs(expected));
            assert_eq!(backoff.left(), Some(Duration::from_secs(expected)));
            tokio::time::advance(Duration::from_secs(expected)).await;
            assert_eq!(backoff.left(), None);
        }
        backoff.worked();
        assert_eq!(backoff.failed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_within_a_pause_count_once() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        backoff.failed();
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(backoff.failed(), Duration::from_millis(600));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(backoff.failed(), Duration::from_secs(2));
    }
}
