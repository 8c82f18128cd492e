//! Statuses of tasks: their words, and the exit status that stands for each.

use disbatch_values::status::Status;
use serde_json::Value;

/// The exit status of everything that went wrong, as Perl's `die` has it.
pub const FAILED: u8 = 255;

/// The exit status of a wait that took too long, as that of timeout(1).
pub const TIMED_OUT: u8 = 124;

/// The exit status after ^C, as of a shell's child that it ended.
pub const INTERRUPTED: u8 = 130;

const TOO_LARGE: u8 = 100;

pub fn words() -> Vec<&'static str> {
    Status::NAMED.iter().map(|status| status.word()).collect()
}

pub fn from_text(text: &str) -> Option<i64> {
    Status::from_word(text).map(Status::code).or_else(|| text.parse().ok())
}

/// A status for people: its word, or its number if it has none.
pub fn word(code: i64) -> String {
    match Status::from_code(code) {
        Status::Other(code) => format!("status {code}"),
        status => status.word().to_owned(),
    }
}

pub fn code(document: &Value) -> Option<i64> {
    document.get("status").and_then(Value::as_i64)
}

pub fn of(document: &Value) -> String {
    code(document).map(word).unwrap_or_default()
}

pub fn has_ended(code: i64) -> bool {
    Status::from_code(code).has_ended()
}

/// The exit status of `run` and `wait` for a task that has ended.
///
/// None of them is one that the shell, another command or a wrong option has: 1, 2, 124, 126 to 255.
pub fn exit_code(code: i64) -> u8 {
    match Status::from_code(code) {
        Status::Succeeded => 0,
        Status::Failed => 102,
        Status::Terminated => 103,
        Status::Cancelled => 105,
        Status::Orphaned => 106,
        Status::Other(code @ 3..=99) => u8::try_from(code).unwrap_or(TOO_LARGE),
        _ => TOO_LARGE, // Those that have not ended do not get here.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_do_not_collide() {
        let codes = [2, -3, -5, -6, 100, 3, 99];
        let exits = codes.map(exit_code);
        assert_eq!(exits, [102, 103, 105, 106, 100, 3, 99]);
        let taken = [0, 1, 2, TIMED_OUT, INTERRUPTED, FAILED];
        assert!(exits.iter().all(|exit| !taken.contains(exit)));
        assert_eq!((exit_code(1), exit_code(1_000_000)), (0, 100));
    }

    #[test]
    fn statuses_have_words_and_numbers() {
        assert_eq!((from_text("queued"), from_text("-7"), from_text("17")), (Some(-2), Some(-7), Some(17)));
        assert_eq!(from_text("done"), None);
        assert_eq!((word(2), word(17)), ("failed".to_owned(), "status 17".to_owned()));
    }
}
