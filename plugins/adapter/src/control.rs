//! The control descriptor: JSON lines to the runner.

use std::fs::{File, OpenOptions};
use std::io::Write;

use serde_json::{Value, json};

/// Names the descriptor in the environment.
pub const VARIABLE: &str = "DISBATCH_CONTROL_FD";

/// So many characters of how a task gets on are shown.
const SHOWN: usize = 500;

/// The descriptor that the environment names. `None`: there is no runner.
pub fn runner() -> Option<File> {
    let number: u32 = std::env::var(VARIABLE).ok()?.parse().ok()?;
    // One that was inherited is opened by its number without unsafe code.
    OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}")).ok()
}

/// The way to the runner, if there is one.
#[derive(Debug, Default)]
pub struct Control {
    runner: Option<File>,
    /// What was last said of how it gets on.
    message: String,
}

impl Control {
    /// To the runner that the environment names.
    pub fn from_environment() -> Self {
        Self { runner: runner(), message: String::new() }
    }

    /// Sends one line. Returns whether somebody may read it.
    pub fn send(&mut self, message: &Value) -> bool {
        let Some(runner) = &mut self.runner else { return false };
        let is_sent = runner.write_all(format!("{message}\n").as_bytes()).is_ok();
        if !is_sent {
            // The task goes on; only nobody hears of it.
            self.runner = None;
        }
        is_sent
    }

    /// Says how it gets on, if that is something else than what was said last.
    pub fn progress(&mut self, message: &str) {
        let message: String = message.chars().take(SHOWN).collect();
        if message != self.message {
            self.send(&json!({ "progress": { "message": message } }));
            self.message = message;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn each_progress_is_said_once_and_not_at_any_length() {
        let mut file = tempfile::tempfile().unwrap();
        let mut control = Control { runner: Some(file.try_clone().unwrap()), message: String::new() };
        for message in ["a", "a", "b"] {
            control.progress(message);
        }
        control.progress(&"\u{2603}".repeat(SHOWN + 1));
        assert!(control.send(&json!({ "facts": {} })));
        let mut said = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4, "{said}");
        assert_eq!(lines[1]["progress"]["message"], "b");
        assert_eq!(lines[2]["progress"]["message"].as_str().unwrap().chars().count(), SHOWN);
        assert!(!Control::default().send(&json!(1)), "nobody listens");
    }
}
