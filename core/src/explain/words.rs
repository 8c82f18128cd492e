//! Times, spans and numbers as people read them.

use bson::DateTime;

/// `2026-11-20 08:24:27 UTC`
pub(super) fn moment(at: DateTime) -> String {
    match at.try_to_rfc3339_string() {
        Ok(text) if text.len() >= 19 => format!("{} UTC", text[..19].replace('T', " ")),
        _ => format!("{} ms since 1970", at.timestamp_millis()),
    }
}

/// How long it is from one time to a later one; 0 seconds if it is not later.
pub(super) fn span_until(from: DateTime, to: DateTime) -> String {
    let seconds = to.timestamp_millis().saturating_sub(from.timestamp_millis()).max(0) / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds % 86_400 / 3_600, seconds % 3_600 / 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (1, _, _) => format!("1 day {hours} h"),
        _ => format!("{days} days {hours} h"),
    }
}

/// `1 task`, `3 tasks`
pub(super) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// `a`, `a and b`, `a, b and c`
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let at = |seconds: i64| DateTime::from_millis(1_795_163_067_344 + seconds * 1000);
        assert_eq!(moment(at(0)), "2026-11-20 08:24:27 UTC");
        let spans =
            [(-5, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3_700, "1 h 1 min"), (90_000, "1 day 1 h")];
        for (seconds, text) in spans {
            assert_eq!(span_until(at(0), at(seconds)), text);
        }
        assert_eq!(span_until(at(0), at(200_000)), "2 days 7 h");
    }

    #[test]
    fn lists_and_numbers_read_as_sentences() {
        let names = |names: &[&str]| list(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["a"]), "a");
        assert_eq!(names(&["a", "b", "c"]), "a, b and c");
        assert_eq!((counted(1, "task"), counted(0, "task")), ("1 task".to_owned(), "0 tasks".to_owned()));
    }
}
