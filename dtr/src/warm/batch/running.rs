//! A process that is given several tasks at a time; and when tasks that wait are given to one, and which of them together.

use std::sync::Arc;
use std::time::Duration;

use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::TaskId;
use disbatch_core::plugin::Batch;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Entry;
use super::batcher::{Batcher, Lane};
use crate::control::Lines;
use crate::plugin::Say;
use crate::relay::Notes;
use crate::secrets::Wiped;
use crate::supervision;
use crate::warm::meter::Usage;
use crate::warm::pipes::Ready;
use crate::warm::process::{LEAVING, Process};
use crate::warm::start;

/// So much of the end of its standard error is shown to the tasks that a process dies with.
const LAST_WORDS: usize = 4 * 1024;

/// A line of more bytes gets no further tasks.
const LONG_LINE: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) given: u32,
    pub(super) lapped: Instant,
    pub(super) lines: Lines,
    /// What was wrong with what it said, where that is about no task.
    complaints: Notes,
    errors: Vec<u8>,
    /// When it is killed that does not read any more.
    pub(super) kill_at: Option<Instant>,
    pub(super) is_killed: bool,
    pub(super) has_closed_all: bool,
    /// When it is heard, where the first answer waits for others.
    pub(super) heard_at: Option<Instant>,
}

impl Running {
    pub(super) fn new(process: Process) -> Self {
        Self {
            process,
            given: 0,
            lapped: Instant::now(),
            lines: Lines::default(),
            complaints: Notes::default(),
            errors: Vec::new(),
            kill_at: None,
            is_killed: false,
            has_closed_all: false,
            heard_at: None,
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        let has_all = self.given >= self.process.key.limits.tasks;
        has_all || self.is_killed || self.kill_at.is_some() || !self.process.is_fit()
    }

    pub(super) fn send(&mut self) {
        if self.process.pipes.send().is_err() {
            // It is about to end. If not, it has no part in this any more.
            self.kill_at.get_or_insert_with(|| Instant::now() + LEAVING);
        }
    }

    /// What each of so many tasks has used that it has just been done with: nothing tells which of them used how much.
    pub(super) fn used_by_each(&mut self, answered: usize) -> Usage {
        let answered = u32::try_from(answered).unwrap_or(u32::MAX);
        if answered == 0 {
            return Usage { cpu: Duration::ZERO, memory: 0 };
        }
        let now = Instant::now();
        let usage = self.process.meter.lap(now - std::mem::replace(&mut self.lapped, now));
        self.process.count(answered, usage);
        Usage { cpu: usage.cpu / answered, memory: usage.memory }
    }

    /// Reads what belongs to no task. The end of standard error is kept. `all`: until nothing is left.
    pub(super) fn take_stray(&mut self, ready: Ready, all: bool) {
        let (errors, mut read) = (&mut self.errors, 0);
        let take = |bytes: &[u8]| {
            read += bytes.len() as u64;
            if matches!(ready, Ready::Stderr) {
                errors.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_WORDS)..]);
                errors.drain(..errors.len().saturating_sub(LAST_WORDS));
            }
        };
        self.process.pipes.take_from(ready, all, take);
        self.process.pipes.stray += read;
        self.process.tell_of_stray();
    }

    pub(super) fn complain(&mut self, why: &str) {
        if self.complaints.add(why) {
            tracing::warn!(plugin = %self.process.key.name, "{why}");
        }
    }

    /// What a task is shown that the process has died with. `for_another`: because another one was to end.
    pub(super) fn last_words(&self, for_another: bool) -> Arc<str> {
        let mut words = String::from_utf8_lossy(&self.errors).into_owned();
        if !words.is_empty() && !words.ends_with('\n') {
            words.push('\n');
        }
        words.extend(self.complaints.lines("complaints about what the plugin says"));
        if for_another {
            words.push_str("disbatch: the process was ended because another task of its batch had to end\n");
        }
        words.into()
    }
}

/// What a line says: the task that it is about, the rest, and how long it is.
pub(super) fn read(line: &[u8]) -> Result<(TaskId, Map<String, Value>, usize), String> {
    let message = serde_json::from_slice::<Map<String, Value>>(line);
    let mut message = message.map_err(|error| format!("a control line is no JSON object: {error}"))?;
    let id = message.remove("id").unwrap_or_default();
    match id.as_str().and_then(|id| id.parse().ok()) {
        Some(task) => Ok((task, message, line.len())),
        None => Err(format!("a control line is ignored: {id} is no id of a task")),
    }
}

impl Batcher {
    /// Gives the process what waits, if it is time for that.
    pub(super) async fn give(&mut self, lifecycle: &Lifecycle) {
        self.due = None;
        while let Some(first) = self.waiting.front() {
            let is_of_another = self
                .running
                .as_ref()
                .is_some_and(|running| running.is_leaving() || running.process.key != *first.key);
            if is_of_another {
                if !self.lanes.is_empty() {
                    return;
                }
                Box::pin(self.end()).await;
                continue;
            }
            let limits = first.key.limits;
            let batch = limits.batch.unwrap_or(Batch { max: 1, wait_ms: 0 });
            let given = self.running.as_ref().map_or(0, |running| running.given);
            let left = limits.tasks.saturating_sub(given);
            let most = usize::try_from(batch.max).unwrap_or(1).saturating_sub(self.lanes.len());
            let room = most.min(usize::try_from(left).unwrap_or(usize::MAX));
            if room == 0 || self.lanes.values().any(|lane| lane.end.is_some()) {
                return;
            }
            let until = first.arrived + batch.wait();
            if self.waiting.len() < room && until > Instant::now() {
                self.due = Some(until);
                return;
            }
            let (mut ready, mut bytes) = (0, 0);
            for entry in self.waiting.iter().take(room) {
                bytes += entry.line.len();
                if *entry.key != *first.key || (ready > 0 && bytes > LONG_LINE) {
                    break;
                }
                ready += 1;
            }
            if self.running.is_none() && !self.start(ready, lifecycle).await {
                continue;
            }
            let entries: Vec<Entry> = self.waiting.drain(..ready).collect();
            self.send(entries);
        }
    }

    /// Starts a process for the first so many that wait. Returns false if it cannot be started: then these are told so.
    async fn start(&mut self, ready: usize, lifecycle: &Lifecycle) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        let (key, node) = (Arc::clone(&first.key), first.node.clone());
        let mut until =
            self.waiting.iter().take(ready).map(|entry| entry.until).min().unwrap_or(Duration::ZERO);
        // What is wished meanwhile is heard when it has been started.
        let (_supervisor, mut supervision) = supervision::channel();
        let mut say = Say { supervision: &mut supervision, lifecycle };
        match Box::pin(start(&key, (&node, &mut until), &mut self.guards, &mut say)).await {
            Ok(process) => {
                self.running = Some(Running::new(process));
                true
            }
            Err(error) => {
                for entry in self.waiting.drain(..ready) {
                    entry.refuse(&error.to_string(), error.reason());
                }
                false
            }
        }
    }

    fn send(&mut self, entries: Vec<Entry>) {
        let Some(running) = &mut self.running else { return };
        if self.lanes.is_empty() {
            // What it has written since it had none belongs to nobody.
            running.process.pipes.discard();
            running.process.tell_of_stray();
            running.lines = Lines::default();
            running.lapped = Instant::now();
        }
        let line = running.process.pipes.put(line_of(&entries));
        running.given += u32::try_from(entries.len()).unwrap_or(u32::MAX);
        for Entry { task, until, words, .. } in entries {
            self.lanes.insert(task, Lane { words, until, began: Instant::now(), line, end: None });
        }
        self.grant();
        if let Some(running) = &mut self.running {
            running.send();
        }
    }
}

fn line_of(entries: &[Entry]) -> Wiped {
    let mut line = Wiped::default();
    // Where each had its line break there is room for a comma.
    line.reserve(entries.iter().map(|entry| entry.line.len()).sum::<usize>() + 16);
    for (index, entry) in entries.iter().enumerate() {
        line.extend(if index == 0 { b"{\"tasks\":[" } else { b"," });
        line.extend(entry.line.trim_ascii_end());
    }
    line.extend(b"]}\n");
    line
}
