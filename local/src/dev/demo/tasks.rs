//! The tasks of the demo.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

const DEMO: &str = "demo";
const SHELL: &str = "demo-shell";

/// The queues of the demo, with their plugins.
pub const QUEUES: [(&str, &str); 2] = [(DEMO, "Disbatch::Plugin::Demo"), (SHELL, "Disbatch::Plugin::Shell")];

/// How many bytes the task with the large output prints: over the 15 MiB that fit a task.
pub const LARGE_OUTPUT: usize = 20_000_000;

const QUEUED: i64 = -2;
const SUCCEEDED: i64 = 1;
const FAILED: i64 = 2;

/// A task of the demo and what is known of it.
#[derive(Debug)]
pub struct Demo {
    pub queue: &'static str,
    /// What it does, for people.
    pub what: String,
    pub params: Value,
    /// The status that it is to end with.
    pub expected: i64,
    /// Whether it prints [`LARGE_OUTPUT`] bytes.
    pub is_large: bool,
    /// Its id, once it is submitted.
    pub id: String,
    /// The task as it was seen last.
    pub document: Value,
    /// How long it was seen running.
    pub took: Option<Duration>,
    running_since: Option<Instant>,
}

impl Demo {
    fn new(queue: &'static str, what: &str, params: Value) -> Self {
        Self {
            queue,
            what: what.to_owned(),
            params,
            expected: SUCCEEDED,
            is_large: false,
            id: String::new(),
            document: Value::Null,
            took: None,
            running_since: None,
        }
    }

    /// Takes note of the task as it is now.
    pub fn look(&mut self, document: Value) {
        self.document = document;
        if self.status() == 0 {
            self.running_since.get_or_insert_with(Instant::now);
        }
        if self.is_done() {
            self.took = self.running_since.map(|since| since.elapsed());
        }
    }

    /// Its status as far as it is known.
    pub fn status(&self) -> i64 {
        self.document["status"].as_i64().unwrap_or(QUEUED)
    }

    /// Whether nothing more will happen to it.
    pub fn is_done(&self) -> bool {
        self.status() >= SUCCEEDED || self.status() < QUEUED
    }

    /// Whether it ended as it was to.
    pub fn is_as_expected(&self) -> bool {
        self.status() == self.expected
    }
}

/// Twenty tasks. One of them fails: that is what it is for.
pub fn all() -> Vec<Demo> {
    let letters = ["a", "b", "ab", "ba", "aab", "abb", "1", "a1b"];
    let mut demos: Vec<Demo> = letters
        .iter()
        .map(|letters| Demo::new(DEMO, &format!("commands {letters}"), json!({ "commands": letters })))
        .collect();
    let shell = |what: &str, command: Value| Demo::new(SHELL, what, json!({ "command": command }));
    let line = |command: &str| shell(command, json!(command));
    let fails = line("echo 'no paper' >&2; exit 3");
    let large = shell("20 MB of numbers", json!("seq -w 1 2500000"));
    let greeting = json!({ "command": "echo \"$GREETING\"", "env": { "GREETING": "hello, environment" } });
    demos.extend([
        shell("5 steps in 3 seconds", json!("for i in 1 2 3 4 5; do echo step $i of 5; sleep 0.6; done")),
        Demo { is_large: true, ..large },
        Demo { expected: FAILED, ..fails },
        shell("uname -a", json!(["uname", "-a"])),
        shell("date", json!(["date"])),
        shell("id", json!(["id"])),
        line("seq 1 100000 | sort -R | tail -3"),
        line("ls / | wc -l"),
        shell(
            "sum of a million",
            json!("awk 'BEGIN { for (i = 1; i <= 1000000; i++) s += i; printf \"%.0f\\n\", s }'"),
        ),
        line("head -c 1000000 /dev/urandom | md5sum"),
        line("echo one; echo two >&2"),
        Demo::new(SHELL, "echo \"$GREETING\"", greeting),
    ]);
    demos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twenty_and_one_is_to_fail() {
        let demos = all();
        assert_eq!(demos.len(), 20);
        assert_eq!(demos.iter().filter(|demo| demo.expected == FAILED).count(), 1);
        assert_eq!(demos.iter().filter(|demo| demo.is_large).count(), 1);
        assert!(demos.iter().all(|demo| QUEUES.iter().any(|(name, _)| *name == demo.queue)));
    }

    #[test]
    fn a_task_is_done_when_it_is_final() {
        let mut demo = all().remove(0);
        for (status, done) in [(-2, false), (-1, false), (0, false), (1, true), (2, true), (-6, true)] {
            demo.look(json!({ "status": status }));
            assert_eq!(demo.is_done(), done, "{status}");
            assert_eq!(demo.is_as_expected(), status == 1, "{status}");
        }
    }
}
