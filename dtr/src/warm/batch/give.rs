//! When tasks that wait are given to a process, and which of them together.

use std::sync::Arc;
use std::time::Duration;

use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::plugin::Batch;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::Entry;
use super::batcher::{Batcher, Lane};
use super::running::Running;
use crate::control::Lines;
use crate::supervision;
use crate::warm::process::Say;
use crate::warm::start;

/// A line of more bytes gets no further tasks.
const LONG_LINE: usize = 4 * 1024 * 1024;

impl Batcher {
    /// Gives the process what waits, if it is time for that.
    pub(super) async fn give(&mut self, lifecycle: &Lifecycle) {
        self.due = None;
        while let Some(first) = self.waiting.front() {
            let is_of_another = self
                .running
                .as_ref()
                .is_some_and(|running| running.is_leaving() || *running.key != *first.key);
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
        let say = Say { supervision: &mut supervision, lifecycle };
        match Box::pin(start(&key, (&node, &mut until), &mut self.guards, say)).await {
            Ok(process) => {
                self.running = Some(Running::new(key, process));
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

    /// Gives the process these tasks, in one line.
    fn send(&mut self, entries: Vec<Entry>) {
        let Some(running) = &mut self.running else { return };
        if self.lanes.is_empty() {
            // What it has written since it had none belongs to nobody.
            running.process.pipes.discard();
            running.process.tell_of_stray();
            running.lines = Lines::default();
            running.lapped = Instant::now();
        }
        let begins = running.put;
        running.put(line_of(&entries));
        running.given += u32::try_from(entries.len()).unwrap_or(u32::MAX);
        for Entry { task, until, words, .. } in entries {
            let (line, began) = ((begins, running.put), Instant::now());
            self.lanes.insert(task, Lane { words, until, began, line, end: None });
        }
        self.grant();
        if let Some(running) = &mut self.running {
            running.send();
        }
    }
}

/// The line that brings these tasks. It is overwritten when it is dropped, and its buffer never grows.
fn line_of(entries: &[Entry]) -> Zeroizing<Vec<u8>> {
    const START: &[u8] = b"{\"tasks\":[";
    const END: &[u8] = b"]}\n";
    let length = entries.iter().map(|entry| entry.line.len()).sum::<usize>();
    let mut line = Zeroizing::new(Vec::with_capacity(START.len() + length + END.len()));
    line.extend_from_slice(START);
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        line.extend_from_slice(entry.line.trim_ascii_end());
    }
    line.extend_from_slice(END);
    line
}
