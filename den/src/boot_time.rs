//! The clock that guards go by: it goes on while the machine is suspended, and all its processes share it.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The time since the machine was started, with the time that it was suspended.
pub fn boot_time() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}
