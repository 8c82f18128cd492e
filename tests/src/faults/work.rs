//! What the plugin of the fault suite does with a task, and how it is known afterwards what it did: it
//! writes a record of its own outside the database.

use std::time::Duration;

use bson::{Document, doc};
use nix::time::{ClockId, clock_gettime};

/// What a task asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub millis: u32,
    /// How many lines it prints.
    pub lines: u32,
    /// Up to this attempt it fails, when all else is done.
    pub fails: u32,
}

/// The record of a plugin process holds lines of these words and their values.
pub const START: &str = "start";
/// It is alive.
pub const BEAT: &str = "beat";
/// It has printed everything and is about to exit with 0.
pub const END: &str = "end";

impl Work {
    pub fn params(self) -> Document {
        doc! {
            "millis": i64::from(self.millis), "lines": i64::from(self.lines), "fails": i64::from(self.fails),
        }
    }

    /// From the parameters of a task.
    pub fn of(params: &serde_json::Value) -> Option<Self> {
        let number = |name: &str| u32::try_from(params.get(name)?.as_u64()?).ok();
        Some(Self { millis: number("millis")?, lines: number("lines")?, fails: number("fails")? })
    }

    /// What process `pid` prints for attempt `attempt` of `task`.
    pub fn output(self, task: &str, attempt: i64, pid: i32) -> String {
        (0..self.lines)
            .map(|line| {
                format!("task {task} attempt {attempt} process {pid} line {line} of {}\n", self.lines)
            })
            .collect()
    }
}

/// The time since the machine was started, with the time that it was suspended.
pub fn boot_time() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// The time of day, since 1970.
pub fn wall_time() -> Duration {
    clock_gettime(ClockId::CLOCK_REALTIME).map(Duration::from).unwrap_or_default()
}
