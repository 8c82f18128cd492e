//! The control descriptor: JSON lines to the runner.

use std::fs::{File, OpenOptions};
use std::io::Write;

use serde_json::{Value, json};

/// Names the descriptor in the environment.
const VARIABLE: &str = "DISBATCH_CONTROL_FD";

/// The way to the runner, if there is one.
#[derive(Debug, Default)]
pub struct Control {
    runner: Option<File>,
    /// What was last said of how it gets on.
    message: String,
}

impl Control {
    /// Opens the descriptor that the environment names.
    pub fn from_environment() -> Self {
        let number = std::env::var(VARIABLE).ok().and_then(|number| number.parse::<u32>().ok());
        // An inherited descriptor is opened by its number without unsafe code.
        let open = |number| OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}"));
        Self { runner: number.and_then(|number| open(number).ok()), message: String::new() }
    }

    /// Sends one line.
    pub fn send(&mut self, message: &Value) {
        if let Some(runner) = &mut self.runner
            && runner.write_all(format!("{message}\n").as_bytes()).is_err()
        {
            // The task goes on; only nobody hears of it.
            self.runner = None;
        }
    }

    /// Says how it gets on, if that is something else than what was said last.
    pub fn progress(&mut self, message: &str) {
        /// So many characters are shown.
        const SHOWN: usize = 500;
        let message: String = message.chars().take(SHOWN).collect();
        if message != self.message {
            self.send(&json!({ "progress": { "message": message } }));
            self.message = message;
        }
    }
}
