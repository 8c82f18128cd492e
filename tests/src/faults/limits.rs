//! Which limit of a queue was in force when.
//!
//! The rule that is checked: of plugins that are alive at the same time, look at the one whose task was claimed
//! last. Its DEN has read the queue's limit within the second before that claim, or between the claim and the start of the plugin, and what
//! slots do not bound it has counted. So there are no more of them than the largest limit that was in force in that time. What was
//! claimed before a limit was lowered may go on, and a runner that was stopped between claim and start may start
//! its plugin late; neither excuses a claim that was made after the change.

use std::time::Duration;

/// The limits of one queue in the order of time.
#[derive(Debug, Clone, Default)]
pub struct Limits(Vec<Limit>);

#[derive(Debug, Clone, Copy)]
struct Limit {
    threads: u64,
    /// It was in force at this time at the earliest, by the time of day.
    from: Duration,
    /// And certainly from this time on.
    certain: Duration,
}

impl Limits {
    /// A limit that has come into force at some time between two others.
    pub fn changed(&mut self, threads: u64, from: Duration, certain: Duration) {
        self.0.push(Limit { threads, from, certain });
    }

    /// The largest limit that may have been in force at some time between two others.
    pub fn largest(&self, from: Duration, until: Duration) -> u64 {
        let next = self.0.iter().skip(1).map(|next| next.certain).chain([Duration::MAX]);
        let in_force = |(limit, replaced): &(&Limit, Duration)| limit.from <= until && *replaced >= from;
        self.0.iter().zip(next).filter(in_force).map(|(limit, _)| limit.threads).max().unwrap_or(0)
    }

    /// The largest limit ever.
    pub fn most(&self) -> u64 {
        self.0.iter().map(|limit| limit.threads).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_limit_of_a_time_counts() {
        let s = Duration::from_secs;
        let mut limits = Limits::default();
        limits.changed(5, s(0), s(1));
        limits.changed(2, s(10), s(12));
        limits.changed(6, s(20), s(21));
        assert_eq!(limits.largest(s(5), s(6)), 5);
        assert_eq!(limits.largest(s(11), s(11)), 5, "it was being changed");
        assert_eq!(limits.largest(s(13), s(19)), 2);
        assert_eq!(limits.largest(s(13), s(20)), 6);
        assert_eq!(limits.largest(s(5), s(30)), 6);
        assert_eq!(limits.most(), 6);
    }
}
