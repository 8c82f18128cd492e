//! Time as the processes see it. Everything that decides by the time of day takes a [`Clock`], so that tests
//! can set it; other sources are banned by `clippy.toml`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use bson::DateTime;
use nix::time::{ClockId, clock_gettime};

pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The time now, in milliseconds' resolution as MongoDB stores it.
    fn now(&self) -> DateTime;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the host")]
    fn now(&self) -> DateTime {
        DateTime::now()
    }
}

/// The time since the machine was started, by the clock that leases of plugins are kept by: it goes on while the machine is suspended, and
/// is the same for all its processes.
pub fn boot_time() -> Duration {
    // Linux has this clock. Without it every lease is over, which is the safe side.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from)
}

/// A random number, to keep processes from doing the same thing at the same moment.
pub fn random() -> u64 {
    // The standard library seeds each of these at random.
    RandomState::new().build_hasher().finish()
}

/// A random number from 0 to 1, for the same end.
pub fn chance() -> f64 {
    f64::from(u32::try_from(random() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
