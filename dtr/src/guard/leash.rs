//! How long a plugin may live. Pure: the time is given.
//!
//! All times are those of a clock that goes on while the machine is suspended.

use std::time::Duration;

use super::protocol::Why;

/// When the plugin must be killed unless the runner says otherwise.
#[derive(Debug)]
pub struct Leash {
    patience: Duration,
    silent_at: Duration,
    lease_at: Option<Duration>,
}

impl Leash {
    /// The runner may be silent for `patience`; no other limit yet.
    pub fn new(patience: Duration, now: Duration) -> Self {
        Self { patience, silent_at: now.saturating_add(patience), lease_at: None }
    }

    /// The runner has said something.
    pub fn heard(&mut self, now: Duration) {
        self.silent_at = now.saturating_add(self.patience);
    }

    /// The runner has given so much time; `None`: no limit but its silence.
    pub fn lease(&mut self, time: Option<Duration>, now: Duration) {
        self.lease_at = time.map(|time| now.saturating_add(time));
    }

    /// Why the plugin must be killed, if it must.
    pub fn broken(&self, now: Duration) -> Option<Why> {
        match self.lease_at {
            Some(end) if end <= now => Some(Why::Lease),
            _ => (self.silent_at <= now).then_some(Why::Silent),
        }
    }

    /// How long nothing needs to be done.
    pub fn slack(&self, now: Duration) -> Duration {
        self.lease_at.unwrap_or(Duration::MAX).min(self.silent_at).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn silence_breaks_it_whatever_the_lease() {
        for lease in [None, Some(s(100))] {
            let mut leash = Leash::new(s(30), s(1000));
            leash.lease(lease, s(1000));
            assert_eq!((leash.broken(s(1029)), leash.slack(s(1029))), (None, s(1)));
            leash.heard(s(1029));
            assert_eq!((leash.broken(s(1058)), leash.slack(s(1058))), (None, s(1)));
            assert_eq!((leash.broken(s(1059)), leash.slack(s(2000))), (Some(Why::Silent), s(0)));
        }
    }

    #[test]
    fn a_lease_ends_although_the_runner_talks_and_can_be_renewed_and_lifted() {
        let mut leash = Leash::new(s(30), s(0));
        leash.lease(Some(s(10)), s(0));
        leash.heard(s(9));
        assert_eq!((leash.broken(s(9)), leash.slack(s(9))), (None, s(1)));
        assert_eq!(leash.broken(s(10)), Some(Why::Lease));
        leash.lease(Some(s(10)), s(9));
        assert_eq!(leash.broken(s(18)), None);
        leash.lease(None, s(18));
        assert_eq!(leash.broken(s(30)), None);
    }
}
