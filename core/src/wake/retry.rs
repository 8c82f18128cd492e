//! Pauses before a lost stream is asked for again: longer each time, and of random length, so that a thousand
//! nodes do not come back in the same moment.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(16);

/// How long to wait.
#[derive(Debug)]
pub(super) struct Retry {
    pause: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { pause: FIRST }
    }
}

impl Retry {
    /// The next pause, from half to one and a half of what it is on average. `chance` is from 0 to 1.
    pub(super) fn failed(&mut self, chance: f64) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST);
        pause.mul_f64(0.5 + chance.clamp(0.0, 1.0))
    }

    /// The stream works.
    pub(super) fn worked(&mut self) {
        self.pause = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_spread_and_begin_anew() {
        let mut retry = Retry::default();
        let pauses: Vec<u128> = (0..8).map(|_| retry.failed(0.5).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000]);
        assert_eq!(retry.failed(0.0), Duration::from_secs(8));
        assert_eq!(retry.failed(1.0), Duration::from_secs(24));
        retry.worked();
        assert_eq!(retry.failed(0.0), Duration::from_millis(125));
    }
}
