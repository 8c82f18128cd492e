//! The clock by which a plugin's time is measured: it goes on while the machine is suspended, and is the same
//! for all processes of the machine.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The time since the machine was started.
pub fn boot_time() -> Duration {
    // Linux has this clock. Without it every lease is over, which is the safe side.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from)
}
