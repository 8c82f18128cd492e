//! Time as the processes see it. Everything that decides by the time of day takes a [`Clock`], so that tests
//! can set it; other sources are banned by `clippy.toml`.

use std::sync::Mutex;

use bson::DateTime;

/// A source of the current time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The time now, in milliseconds' resolution as MongoDB stores it.
    fn now(&self) -> DateTime;
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the host")]
    fn now(&self) -> DateTime {
        DateTime::now()
    }
}

/// A clock that a test sets.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: DateTime) -> Self {
        Self(Mutex::new(now))
    }

    /// Moves the clock to `now`.
    pub fn set(&self, now: DateTime) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = now;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
