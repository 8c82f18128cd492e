//! What is known about the end of a plugin: for the task, and for whoever reads its standard error; and which status its task
//! ends with.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use disbatch_core::model::Status;
use serde_json::Value;

use crate::guard::limits::Exceeded;
use crate::guard::protocol::Exit;
use crate::supervision::Reason;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitFacts {
    pub exit: Exit,
    /// Why it was made to end, if it was. A plugin that ended before that took effect has none.
    pub reason: Option<Reason>,
}

impl ExitFacts {
    /// The facts about an exit; `reason`: what the runner wanted the plugin to end for.
    pub fn of(exit: &Exit, reason: Option<Reason>) -> Self {
        Self { exit: *exit, reason: if exit.lapsed { Some(Reason::LeaseLost) } else { reason } }
    }

    /// The facts about a task of a warm plugin, whose process goes on. `used`: processor time, and bytes of memory.
    pub fn of_task(exit: ExitStatus, duration: Duration, (cpu, memory): (Duration, u64)) -> Self {
        let status = exit.into_raw();
        let exit = Exit { status, alone: true, duration, cpu, peak_memory: memory, ..Exit::default() };
        Self { exit, reason: None }
    }

    /// The exit status, unless a signal ended the process.
    pub fn code(&self) -> Option<i32> {
        self.exit.exit_status().code()
    }

    pub fn signal(&self) -> Option<i32> {
        self.exit.exit_status().signal()
    }

    /// The same with what was used before by the plugins of earlier steps.
    pub fn after(self, before: &Self) -> Self {
        let (own, before) = (self.exit, before.exit);
        let exit = Exit {
            duration: own.duration.saturating_add(before.duration),
            cpu: own.cpu.saturating_add(before.cpu),
            peak_memory: own.peak_memory.max(before.peak_memory),
            ..own
        };
        Self { exit, ..self }
    }

    pub fn log(&self) {
        let Exit { oom, limit, duration, cpu, peak_memory, .. } = self.exit;
        tracing::debug!(
            code = self.code(),
            signal = self.signal(),
            oom,
            limit = limit.map(Exceeded::key),
            reason = self.reason.map(Reason::as_str),
            duration_s = duration.as_secs_f64(),
            cpu_s = cpu.as_secs_f64(),
            peak_memory,
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
    why.map(str::to_owned).into_iter().chain(limit).chain(signal_note(exit.exit_status(), exit.oom))
}

/// The final status of a task by how the plugin's process ended and what it said on its control channel.
///
/// A signal is a failure whatever was said before. A success that was announced by a process which then
/// fails is a failure too. Any other announced status stands.
pub fn final_status(exit: ExitStatus, announced: Option<&Value>) -> Status {
    match (exit.code(), announced.map(announced_status)) {
        (None, _) => Status::Failed,
        (Some(0), None) => Status::Succeeded,
        (Some(_), None) => Status::Failed,
        (Some(0), Some(status)) => status,
        (Some(_), Some(Status::Succeeded)) => Status::Failed,
        (Some(_), Some(status)) => status,
    }
}

/// Disbatch's rule: a positive integer, or text that is one (`/^[1-9]\d*$/`, which in Perl allows a line
/// break at the end); everything else is a failure.
pub fn announced_status(value: &Value) -> Status {
    let text = match value {
        Value::String(text) => text.strip_suffix('\n').unwrap_or(text).to_owned(),
        Value::Number(number) if number.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() < 1e15) => {
            // Perl writes 1.0 as 1.
            number
                .as_i64()
                .map_or_else(|| format!("{:.0}", number.as_f64().unwrap_or(0.0)), |n| n.to_string())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return Status::Failed;
        }
    };
    let legal =
        text.starts_with(|c: char| ('1'..='9').contains(&c)) && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(code) if legal => Status::from_code(code),
        _ => Status::Failed,
    }
}

/// A line for the task's standard error when a signal ended the plugin, `oom`: because memory ran out.
pub fn signal_note(exit: ExitStatus, oom: bool) -> Option<String> {
    let number = exit.signal()?;
    let name = nix::sys::signal::Signal::try_from(number).map_or("unknown", nix::sys::signal::Signal::as_str);
    let core = if exit.core_dumped() { ", core dumped" } else { "" };
    let memory = if oom { ": out of memory" } else { "" };
    Some(format!("Plugin killed by signal {number} ({name}{core}){memory}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn announced_statuses_follow_perls_rule() {
        // What the Perl runner made of each value, from its recordings.
        let cases = [
            (json!(1), 1),
            (json!("1"), 1),
            (json!("1\n"), 1),
            (json!(3), 3),
            (json!(99_999_999_999_i64), 99_999_999_999),
            (json!(0), 2),
            (json!(-1), 2),
            (json!("abc"), 2),
            (json!(1.5), 2),
            (json!("01"), 2),
            (json!([1]), 2),
            (json!(null), 2),
            (json!("1\n\n"), 2),
            (json!(""), 2),
            (json!("99999999999999999999999"), 2),
        ];
        for (value, code) in cases {
            assert_eq!(final_status(exited(0), Some(&value)).code(), code, "{value}");
        }
    }

    #[test]
    fn the_exit_status_decides_when_nothing_was_announced() {
        assert_eq!(final_status(exited(0), None), Status::Succeeded);
        assert_eq!(final_status(exited(3), None), Status::Failed);
        assert_eq!(final_status(exited(255), None), Status::Failed);
    }

    #[test]
    fn failing_after_announcing_success_is_a_failure() {
        assert_eq!(final_status(exited(1), Some(&json!(1))), Status::Failed);
        assert_eq!(final_status(exited(1), Some(&json!(7))).code(), 7);
        assert_eq!(final_status(ExitStatus::from_raw(11), Some(&json!(1))), Status::Failed);
    }

    #[test]
    fn signals_are_named() {
        let note = |status, oom| signal_note(ExitStatus::from_raw(status), oom);
        assert_eq!(note(11, false).unwrap(), "Plugin killed by signal 11 (SIGSEGV)\n");
        assert_eq!(note(9, false).unwrap(), "Plugin killed by signal 9 (SIGKILL)\n");
        assert_eq!(note(9, true).unwrap(), "Plugin killed by signal 9 (SIGKILL): out of memory\n");
        assert_eq!(note(9 << 8, false), None);
    }
}
