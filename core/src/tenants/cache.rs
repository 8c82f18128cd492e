//! What a process remembers for a moment of how much a tenant has, so that not every submission counts the tasks that wait.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long. Tasks that come without being submitted, as those that are tried again, are not known before that.
const KEPT: Duration = Duration::from_secs(2);

/// More tenants than that are not remembered.
const MOST: usize = 1_000;

/// What was counted for tenants lately.
#[derive(Debug, Default)]
pub(crate) struct Lately(Mutex<HashMap<String, (Instant, Counted)>>);

/// How much a tenant had when it was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    /// The day by the server's clock.
    pub day: String,
    /// How many tasks had been submitted on that day.
    pub today: u64,
    /// How many waited, with those that were reserved.
    pub waiting: u64,
}

impl Lately {
    /// The most that a tenant can have now, where `today` have been submitted. `None`: it is to be counted.
    pub(super) fn at_most(&self, tenant: &str, (day, today): (&str, u64), now: Instant) -> Option<u64> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, counted) = remembered.get(tenant)?;
        if now.saturating_duration_since(*at) >= KEPT || counted.day != day {
            return None;
        }
        // All that was reserved since is among what was submitted today.
        Some(counted.waiting.saturating_add(today.checked_sub(counted.today)?))
    }

    /// Remembers what was counted.
    pub(super) fn note(&self, tenant: &str, counted: Counted, at: Instant) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST {
            remembered.clear();
        }
        remembered.insert(tenant.to_owned(), (at, counted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_submitted_since_is_added_for_a_moment() {
        let (lately, now) = (Lately::default(), Instant::now());
        assert_eq!(lately.at_most("acme", ("2026-11-20", 5), now), None);
        lately.note("acme", Counted { day: "2026-11-20".to_owned(), today: 5, waiting: 30 }, now);
        assert_eq!(lately.at_most("acme", ("2026-11-20", 9), now + KEPT / 2), Some(34));
        assert_eq!(lately.at_most("acme", ("2026-11-20", 9), now + KEPT), None);
        assert_eq!(lately.at_most("acme", ("2026-11-20", 4), now), None, "some were given back");
        assert_eq!(lately.at_most("acme", ("2026-11-21", 9), now), None, "it is counted anew each day");
        assert_eq!(lately.at_most("other", ("2026-11-20", 9), now), None);
    }
}
