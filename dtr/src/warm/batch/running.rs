//! A process that is given several tasks at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use disbatch_core::model::TaskId;
use serde_json::{Map, Value};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::control::Lines;
use crate::notes::Notes;
use crate::warm::Key;
use crate::warm::meter::Usage;
use crate::warm::pipes::Ready;
use crate::warm::process::Process;

/// So much of the end of its standard error is shown to the tasks that a process dies with.
const LAST_WORDS: usize = 4 * 1024;

/// How long a process has to end whose standard input is closed.
const LEAVING: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Running {
    pub(super) key: Arc<Key>,
    pub(super) process: Process,
    /// What it has been given. It may be done with some of them.
    pub(super) given: u32,
    pub(super) answered: u32,
    pub(super) lapped: Instant,
    pub(super) lines: Lines,
    /// What was wrong with what it said, where that is about no task.
    complaints: Notes,
    /// The end of its standard error.
    errors: Vec<u8>,
    /// What its standard input had no room for, and how much of the first line it had.
    pub(super) unsent: VecDeque<Zeroizing<Vec<u8>>>,
    sent: usize,
    /// How many bytes it was to be sent, and was sent.
    pub(super) put: u64,
    pub(super) gone: u64,
    /// It has used so much that it is to be replaced.
    is_worn: bool,
    /// When it is killed that does not read any more.
    pub(super) kill_at: Option<Instant>,
    pub(super) is_killed: bool,
    pub(super) has_closed_all: bool,
    /// When it is heard, where the first answer waits for others.
    pub(super) heard_at: Option<Instant>,
}

impl Running {
    pub(super) fn new(key: Arc<Key>, process: Process) -> Self {
        Self {
            key,
            process,
            given: 0,
            answered: 0,
            lapped: Instant::now(),
            lines: Lines::default(),
            complaints: Notes::default(),
            errors: Vec::new(),
            unsent: VecDeque::new(),
            sent: 0,
            put: 0,
            gone: 0,
            is_worn: false,
            kill_at: None,
            is_killed: false,
            has_closed_all: false,
            heard_at: None,
        }
    }

    /// Whether it gets no more tasks.
    pub(super) fn is_leaving(&self) -> bool {
        let is_done = self.given >= self.key.limits.tasks || self.is_worn;
        is_done || self.is_killed || self.kill_at.is_some() || !self.process.is_fit()
    }

    /// Notes what is to be sent.
    pub(super) fn put(&mut self, line: Zeroizing<Vec<u8>>) {
        self.put += line.len() as u64;
        self.unsent.push_back(line);
    }

    /// Sends what its standard input has room for.
    pub(super) fn send(&mut self) {
        while let Some(line) = self.unsent.front() {
            match self.process.pipes.write(&line[self.sent..]) {
                Ok(0) => return,
                Ok(sent) => {
                    self.sent += sent;
                    self.gone += sent as u64;
                }
                Err(_) => {
                    // It is about to end. If not, it has no part in this any more.
                    self.unsent.clear();
                    self.sent = 0;
                    self.kill_at.get_or_insert_with(|| Instant::now() + LEAVING);
                    return;
                }
            }
            if self.sent == line.len() {
                self.sent = 0;
                self.unsent.pop_front();
            }
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
        self.answered = self.answered.saturating_add(answered);
        self.is_worn |= self.process.count(answered, usage);
        Usage { cpu: usage.cpu / answered, memory: usage.memory }
    }

    /// Reads what belongs to no task. The end of standard error is kept. `all`: until nothing is left.
    pub(super) fn take_stray(&mut self, ready: Ready, all: bool) {
        let (errors, mut read) = (&mut self.errors, 0);
        let mut take = |bytes: &[u8]| {
            read += bytes.len() as u64;
            if matches!(ready, Ready::Stderr) {
                errors.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_WORDS)..]);
                errors.drain(..errors.len().saturating_sub(LAST_WORDS));
            }
        };
        match all {
            true => self.process.pipes.take_all_from(ready, &mut take),
            false => self.process.pipes.take_from(ready, &mut take),
        }
        self.process.pipes.stray += read;
        self.process.tell_of_stray();
    }

    pub(super) fn complain(&mut self, why: &str) {
        if self.complaints.add(why) {
            tracing::warn!(plugin = %self.key.name, "{why}");
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
