//! What is known about the end of a plugin: for the task, and for whoever reads its standard error.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use crate::guard::exceeded_limit::Exceeded;
use crate::guard::protocol::Exit;
use crate::supervision::Reason;
use crate::verdict;

/// A task's `exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitFacts {
    /// The exit status, unless a signal ended the process.
    pub code: Option<i32>,
    /// That signal's number.
    pub signal: Option<i32>,
    /// Whether it was killed because memory ran out.
    pub oom: bool,
    /// The limit that ended it, if one did.
    pub limit: Option<Exceeded>,
    /// Why it was made to end, if it was. A plugin that ended before that took effect has none.
    pub reason: Option<Reason>,
    /// Whether nothing that it has started can be left in its private folder.
    pub alone: bool,
    pub duration: Duration,
    /// Processor time of the plugin and of the descendants that were waited for.
    pub cpu: Duration,
    /// The most memory that one of these processes had at once, in bytes. The guard's own, some 4 MiB, is the
    /// least that the kernel tells.
    pub peak_memory: u64,
}

impl ExitFacts {
    /// The facts about an exit; `reason`: what the runner wanted the plugin to end for.
    pub fn of(exit: &Exit, reason: Option<Reason>) -> Self {
        let status = exit.exit_status();
        Self {
            code: status.code(),
            signal: status.signal(),
            oom: exit.oom,
            limit: exit.limit,
            reason: if exit.lapsed { Some(Reason::LeaseLost) } else { reason },
            alone: exit.alone,
            duration: exit.duration,
            cpu: exit.cpu,
            peak_memory: exit.peak_memory,
        }
    }

    /// The facts about a task of a warm plugin, whose process goes on. `used`: processor time, and bytes of memory.
    pub fn of_task(exit: ExitStatus, duration: Duration, (cpu, memory): (Duration, u64)) -> Self {
        let (code, signal) = (exit.code(), exit.signal());
        Self {
            code,
            signal,
            oom: false,
            limit: None,
            reason: None,
            alone: true,
            duration,
            cpu,
            peak_memory: memory,
        }
    }

    /// The same with what was used before by the plugins of earlier steps.
    pub fn after(self, before: &Self) -> Self {
        Self {
            duration: self.duration.saturating_add(before.duration),
            cpu: self.cpu.saturating_add(before.cpu),
            peak_memory: self.peak_memory.max(before.peak_memory),
            ..self
        }
    }

    pub fn log(&self) {
        tracing::debug!(
            code = self.code,
            signal = self.signal,
            oom = self.oom,
            limit = self.limit.map(Exceeded::key),
            reason = self.reason.map(Reason::as_str),
            duration_s = self.duration.as_secs_f64(),
            cpu_s = self.cpu.as_secs_f64(),
            peak_memory = self.peak_memory,
            "plugin ended"
        );
    }
}

/// Lines for the task's standard error; `guarded`: whether the guard lived to tell of the exit.
pub fn notes(exit: &Exit, guarded: bool) -> impl Iterator<Item = String> {
    let why = match (guarded, exit.lapsed) {
        (false, _) => Some("disbatch: the guard of the plugin was killed, so the plugin was killed too\n"),
        (true, true) => Some("disbatch: the plugin was killed because the task's lease ran out\n"),
        (true, false) => None,
    };
    let limit = exit.limit.map(Exceeded::note);
    why.map(str::to_owned).into_iter().chain(limit).chain(verdict::signal_note(exit.exit_status(), exit.oom))
}
