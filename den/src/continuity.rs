//! How long this DEN has reached the database without a gap. Only then may it judge others: after an outage, after it was stopped itself, and after
//! the server's clock has jumped, every runner must have had the chance to renew its lease.

use std::time::Duration;

use bson::DateTime;

#[derive(Debug, Default)]
pub struct Continuity {
    since: Option<Duration>,
    last: Duration,
    clock: Option<Reading>,
}

/// What the server's clock said.
#[derive(Debug)]
struct Reading {
    server: DateTime,
    /// It said so then, or later.
    earliest: Duration,
}

impl Continuity {
    /// The database has answered at `now`. `gap` is the longest time between two answers that is none.
    pub fn reached(&mut self, now: Duration, gap: Duration) {
        if self.since.is_none() || now.saturating_sub(self.last) > gap {
            self.since = Some(now);
        }
        self.last = now;
    }

    /// The server's clock said `server` between `earliest` and `latest`. If it has run ahead of this host's by more than `limit`, that is like an
    /// outage: leases are over that nobody had the time to renew. Returns whether it has.
    pub fn server_said(
        &mut self,
        server: DateTime,
        (earliest, latest): (Duration, Duration),
        limit: Duration,
    ) -> bool {
        let before = self.clock.replace(Reading { server, earliest });
        let jumped = before.is_some_and(|before| {
            let passed = server.timestamp_millis().saturating_sub(before.server.timestamp_millis());
            let at_most = latest.saturating_sub(before.earliest) + limit;
            u128::try_from(passed).is_ok_and(|passed| passed > at_most.as_millis())
        });
        if jumped {
            self.since = None;
        }
        jumped
    }

    /// Whether that has been so for `lease`.
    pub fn lasts(&self, lease: Duration) -> bool {
        self.since.is_some_and(|since| self.last.saturating_sub(since) >= lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_starts_the_time_anew() {
        let second = Duration::from_secs(1);
        let mut continuity = Continuity::default();
        assert!(!continuity.lasts(Duration::ZERO));
        for seconds in 100..=103 {
            continuity.reached(second * seconds, second * 2);
        }
        assert!(continuity.lasts(second * 3));
        assert!(!continuity.lasts(second * 4));
        continuity.reached(second * 110, second * 2);
        assert!(!continuity.lasts(second));
    }

    #[test]
    fn a_server_whose_clock_jumps_ahead_starts_the_time_anew() {
        let (second, limit) = (Duration::from_secs(1), Duration::from_secs(10));
        // What the server said, and between when; whether it has jumped since the line before.
        let said = [
            (1_000, 100, 101, false),
            (1_001, 101, 102, false),
            // An answer that was long under way may be of its beginning or of its end.
            (1_009, 102, 110, false),
            (1_010, 110, 111, false),
            // Ten seconds more than can have passed are no jump, and eleven are one.
            (1_022, 111, 112, false),
            (1_035, 112, 113, true),
            (1_036, 113, 114, false),
            // Back again, as a new primary may say: nobody's lease is over for that.
            (900, 114, 115, false),
            (901, 115, 116, false),
            (1_801, 116, 117, true),
        ];
        let mut continuity = Continuity::default();
        for (server, earliest, latest, jumps) in said {
            continuity.reached(second * latest, second * 20);
            assert!(continuity.lasts(Duration::ZERO));
            let server = DateTime::from_millis(server * 1_000);
            let jumped = continuity.server_said(server, (second * earliest, second * latest), limit);
            assert_eq!((jumped, continuity.lasts(Duration::ZERO)), (jumps, !jumps), "{server} {latest}");
        }
    }
}
