//! The control descriptor: JSON lines to the runner.

use std::fs::{File, OpenOptions};
use std::io::Write;

use serde_json::Value;

/// Names the descriptor in the environment.
const VARIABLE: &str = "DISBATCH_CONTROL_FD";

/// The way to the runner, if there is one.
#[derive(Debug)]
pub struct Control(Option<File>);

impl Control {
    /// Opens the descriptor that the environment names.
    pub fn from_environment() -> Self {
        let number = std::env::var(VARIABLE).ok().and_then(|number| number.parse::<u32>().ok());
        // An inherited descriptor is opened by its number without unsafe code.
        let open = |number| OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}"));
        Self(number.and_then(|number| open(number).ok()))
    }

    /// Sends one line. Returns whether somebody may read it.
    pub fn send(&mut self, message: &Value) -> bool {
        self.0.as_mut().is_some_and(|file| file.write_all(format!("{message}\n").as_bytes()).is_ok())
    }
}
