//! The clock by which a plugin's time is measured: it goes on while the machine is suspended, and is the same
//! for all processes of the machine.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The time since the machine was started.
pub fn boot_time() -> Duration {
    // Linux has this clock. Without it every lease is over, which is the safe side.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from)
}

/// A moment by the clock of the runtime, and by the one that goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// By the clock of the runtime.
    pub at: Instant,
    boot: Duration,
}

impl Asked {
    /// This moment: just before a lease is asked for.
    pub fn now() -> Self {
        Self { boot: boot_time(), at: Instant::now() }
    }

    /// The moment in which a lease was asked for that lets a plugin live until `until`.
    pub fn for_plugin_until(until: Duration, lease: Duration) -> Self {
        let boot = until.saturating_sub(share(lease));
        let now = Self::now();
        Self { at: now.at.checked_sub(now.boot.saturating_sub(boot)).unwrap_or(now.at), boot }
    }

    /// The same moment for a lease that may have been asked for long before: it gives a plugin no time.
    pub fn without_time(self) -> Self {
        Self { boot: Duration::ZERO, ..self }
    }

    /// Until when a plugin may live whose lease was asked for then: less than the lease, so that it has been
    /// killed when that is over.
    pub fn plugin_until(&self, lease: Duration) -> Duration {
        self.boot.saturating_add(share(lease))
    }
}

/// How much of a lease is the plugin's.
fn share(lease: Duration) -> Duration {
    lease.mul_f64(0.9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_lease_was_asked_for_is_known_from_its_end() {
        let lease = Duration::from_secs(30);
        let asked = Asked::now();
        let again = Asked::for_plugin_until(asked.plugin_until(lease), lease);
        assert_eq!(again.boot, asked.boot);
        assert!(again.at.duration_since(asked.at) < Duration::from_secs(1));
        assert_eq!(again.plugin_until(lease), asked.plugin_until(lease));
    }
}
