//! Text that others have written, where people read it; which known name somebody may have meant; and names of those who log in.

use std::borrow::Borrow;

pub use hex::encode as hex;

/// No name of a user is longer, in characters.
const LONGEST_NAME: usize = 64;

/// Whether a character is none that is read, but changes how others are shown: control characters, those that turn the
/// direction of what follows, and those that cannot be seen. The two joiners are not among them, which scripts and pictures
/// are made with.
pub fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text with all such characters written as in Rust, as `\n` or `\u{202e}`.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// The first `most` characters of a text, with `mark` after them where there are more.
pub fn cut(text: &str, most: usize, mark: &str) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}{mark}", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// `a`, `a and b`, `a, b and c`
pub fn list<T: Borrow<str>>(parts: &[T]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => {
            let last: &str = last.borrow();
            format!("{} and {last}", first.join(", "))
        }
        one_at_most => one_at_most.join(""),
    }
}

/// So many percent for people, with at most so many decimal places: `33.3 %`. There is no negative zero.
pub fn percent(percent: f64, places: i32) -> String {
    format!("{} %", rounded(percent, places))
}

/// A change by so many percent, with its sign: `+5 %`.
pub fn percent_more(percent: f64) -> String {
    format!("{:+} %", rounded(percent, 0))
}

fn rounded(number: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (number * scale).round() / scale + 0.0 // Which is what -0 lacks.
}

/// The bytes that hexadecimal digits stand for, two each. `None`: it is something else, or of another length.
pub fn of_hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// So many known names are compared at most, and names up to this length: others are not typed by hand.
const MOST: usize = 500;
const LONGEST: usize = 64;

/// The name of `known` that is nearest to `name`, if it is near: no more than a third of it, and three characters at most, would have to
/// change.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = name.chars().take(LONGEST + 1).collect();
    if typed.len() > LONGEST {
        return None;
    }
    let most = (typed.len() / 3).clamp(1, 3);
    let near = known.into_iter().take(MOST).filter(|known| known.len() <= LONGEST);
    let near = near.map(|known| (distance(&typed, &known.chars().collect::<Vec<_>>()), known));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, known)| known)
}

/// How many characters have to be added, taken away, changed, or swapped with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let width = other.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for (row, a) in one.iter().enumerate() {
        let mut now = vec![row + 1];
        for (column, b) in other.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (at(&last, column) + usize::from(a != b))
                .min(at(&last, column + 1) + 1)
                .min(at(&now, column) + 1);
            let is_swapped =
                row > 0 && column > 0 && one.get(row - 1) == Some(b) && other.get(column - 1) == Some(a);
            if is_swapped {
                cost = cost.min(at(&before, column - 1) + 1);
            }
            now.push(cost);
        }
        before = std::mem::replace(&mut last, now);
    }
    last.last().copied().unwrap_or_default()
}

/// The name of somebody: 1 to 64 characters, none of them white space, a control character or a colon, which ends the
/// name in HTTP Basic authentication.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be the name of a user: expected 1 to 64 characters without white space and colons")]
pub struct NameError(String);

crate::shown_as_text!(UserName, NameError, |text| {
    let odd = |c: char| c == ':' || c.is_whitespace() || c.is_control();
    (1..=LONGEST_NAME).contains(&text.chars().count()) && !text.contains(odd)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_sent_in_a_header() {
        for name in ["alice", "a", "Ünal", "a.b@example.org", &"x".repeat(64)] {
            assert_eq!(name.parse::<UserName>().unwrap().to_string(), name);
        }
        for wrong in ["", " ", "a b", "a:b", "a\n", "\0", &"x".repeat(65)] {
            let error = wrong.parse::<UserName>().unwrap_err();
            assert!(error.to_string().contains("cannot be the name of a user"), "{error}");
        }
    }

    #[test]
    fn nothing_is_neither_more_nor_less() {
        let places = [0, 1, 2].map(|places| percent(100.0 / 3.0, places));
        assert_eq!(places, ["33 %", "33.3 %", "33.33 %"]);
        assert_eq!([percent(-0.04, 1), percent(50.0, 2), percent(0.07 * 100.0, 2)], ["0 %", "50 %", "7 %"]);
        let changes = [-0.4, 0.4, -5.0, 1900.0].map(percent_more);
        assert_eq!(changes, ["+0 %", "+0 %", "-5 %", "+1900 %"]);
    }

    #[test]
    fn what_turns_text_or_moves_a_cursor_is_escaped() {
        assert_eq!(escaped("a\u{1b}[2J\n\u{202e}b\u{2066}\u{9b}"), r"a\u{1b}[2J\n\u{202e}b\u{2066}\u{9b}");
        let plain = "é \"quoted\" \u{1f468}\u{200d}\u{1f469} \u{0646}\u{200c}\u{0647}";
        assert_eq!(escaped(plain), plain, "people write so");
        for c in [
            '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}', '\u{61c}', '\u{feff}', '\0', '\u{7f}',
        ] {
            assert!(is_odd(c), "{c:?}");
        }
    }

    #[test]
    fn what_was_meant_is_near() {
        let known = ["max_attempts", "deadline", "delay", "timeout", "group"];
        let of = |name: &str| closest(name, known);
        assert_eq!(of("max_attemps"), Some("max_attempts"));
        assert_eq!(of("deadine"), Some("deadline"));
        assert_eq!(of("dealy"), Some("delay"));
        assert_eq!(of("timeuot"), Some("timeout"));
        assert_eq!((of("colour"), of(""), of(&"x".repeat(1_000))), (None, None, None));
    }
}
