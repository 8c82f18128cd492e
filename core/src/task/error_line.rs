//! Why a task failed, in a line that lists show without reading output: the field `error`.

use std::iter::Peekable;
use std::str::Chars;

/// The field of a task.
pub const ERROR: &str = "error";

/// It has so many characters at most.
pub(crate) const MOST: usize = 200;

/// The last line of a text that says something, without what controls a terminal. `None`: there is none.
pub fn last_line(text: &str) -> Option<String> {
    let lines = text.rsplit(['\n', '\r']).map(|line| shown(line).trim().to_owned());
    let line = lines.into_iter().find(|line| !line.is_empty())?;
    Some(match line.char_indices().nth(MOST - 1) {
        Some((end, _)) if line.chars().count() > MOST => format!("{}…", line.get(..end).unwrap_or_default()),
        _ => line,
    })
}

/// What a terminal would show of a line.
fn shown(line: &str) -> String {
    let mut shown = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => skip_sequence(&mut letters),
            '\t' => shown.push(' '),
            control if control.is_control() => {}
            letter => shown.push(letter),
        }
    }
    shown
}

/// Skips the rest of an escape sequence: ECMA-48, control sequences and strings.
fn skip_sequence(letters: &mut Peekable<Chars<'_>>) {
    match letters.next() {
        Some('[') => {
            letters.find(|letter| ('@'..='~').contains(letter));
        }
        Some(']') => {
            letters.find(|letter| matches!(letter, '\u{7}' | '\u{1b}'));
            letters.next_if_eq(&'\\');
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_told_as_text() {
        for (text, line) in [
            ("one\ntwo\n\n  \n", "two"),
            ("50 %\r100 %\r\n", "100 %"),
            ("\u{1b}[1;31mno\u{1b}[0m\t<disk>\u{7}", "no <disk>"),
            ("\u{1b}]0;title\u{7}done", "done"),
            ("\u{1b}]0;title\u{1b}\\done", "done"),
            ("\u{1b}[", ""),
            ("", ""),
        ] {
            assert_eq!(last_line(text).unwrap_or_default(), line, "{text:?}");
        }
        let long = last_line(&"é".repeat(1_000)).unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (MOST, true));
        assert_eq!(last_line(&"é".repeat(MOST)).unwrap().chars().count(), MOST);
    }
}
