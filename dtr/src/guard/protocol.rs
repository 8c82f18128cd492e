//! What runner and guard tell each other, line by line. See [`crate::guard`].

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The runner to the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The plugin may live until this time, by [`crate::boot_time`], unless it is given more.
    Until(Duration),
    /// Ask the plugin to end.
    Term,
    /// End the plugin and all its descendants.
    Kill,
}

impl Order {
    /// What a line means; `None` for one that means nothing.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let order = match (words.next()?, words.next()) {
            ("until", Some(milliseconds)) => Self::Until(Duration::from_millis(milliseconds.parse().ok()?)),
            ("term", None) => Self::Term,
            ("kill", None) => Self::Kill,
            _ => return None,
        };
        words.next().is_none().then_some(order)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(time) => writeln!(formatter, "until {}", time.as_millis()),
            Self::Term => writeln!(formatter, "term"),
            Self::Kill => writeln!(formatter, "kill"),
        }
    }
}

/// The guard to the runner, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The plugin runs as this process, which leads a group of its own.
    Pid(i32),
    /// It cannot be started, in the operating system's words.
    Error(String),
    /// It has ended.
    Exited(Exit),
}

/// How the plugin ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// As `waitpid` gives it.
    pub status: i32,
    /// Whether it ended after an order to end.
    pub ordered: bool,
    /// Whether the guard killed it because its time was over.
    pub lapsed: bool,
    /// Whether it was killed because memory ran out.
    pub oom: bool,
    /// How long it ran.
    pub duration: Duration,
    /// Processor time of the plugin and of the descendants that were waited for.
    pub cpu: Duration,
    /// The most memory that one of these processes had at once, in bytes.
    pub peak_memory: u64,
}

impl Exit {
    /// The exit of a plugin of which nothing more is known than that it was killed.
    pub fn unknown() -> Self {
        Self {
            status: nix::sys::signal::Signal::SIGKILL as i32,
            ordered: false,
            lapsed: false,
            oom: false,
            duration: Duration::ZERO,
            cpu: Duration::ZERO,
            peak_memory: 0,
        }
    }

    /// The status as the standard library has it.
    pub fn exit_status(&self) -> ExitStatus {
        ExitStatus::from_raw(self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_way() {
        let orders = [Order::Until(Duration::from_millis(1500)), Order::Term, Order::Kill];
        for order in orders {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for rubbish in ["", "until", "until -1", "until 1 2", "until x", "kill all", "nope"] {
            assert_eq!(Order::parse(rubbish), None, "{rubbish:?}");
        }
    }

    #[test]
    fn reports_are_one_line_each() {
        let exit = Exit { lapsed: true, oom: true, ..Exit::unknown() };
        for report in [Report::Pid(7), Report::Error("two\nlines".into()), Report::Exited(exit)] {
            let line = serde_json::to_string(&report).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
        }
    }
}
