//! Which status a task ends with. Pure.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use disbatch_core::model::Status;
use serde_json::Value;

/// The final status by how the plugin's process ended and what it said on its control channel.
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
