//! The names of keys, and what the standard calls them.

use anyhow::Context;

/// The names that `KeyboardEvent.key` has for them, and the characters of the standard.
const NAMED: [(&str, char); 19] = [
    ("Backspace", '\u{e003}'),
    ("Tab", '\u{e004}'),
    ("Enter", '\u{e007}'),
    ("Shift", '\u{e008}'),
    ("Control", '\u{e009}'),
    ("Alt", '\u{e00a}'),
    ("Escape", '\u{e00c}'),
    ("Space", ' '),
    ("PageUp", '\u{e00e}'),
    ("PageDown", '\u{e00f}'),
    ("End", '\u{e010}'),
    ("Home", '\u{e011}'),
    ("ArrowLeft", '\u{e012}'),
    ("ArrowUp", '\u{e013}'),
    ("ArrowRight", '\u{e014}'),
    ("ArrowDown", '\u{e015}'),
    ("Insert", '\u{e016}'),
    ("Delete", '\u{e017}'),
    ("Meta", '\u{e03d}'),
];

/// The keys of a combination like `j`, `?`, `Enter` or `Shift+Tab`, in the order in which they go down.
pub(super) fn parse(combination: &str) -> anyhow::Result<Vec<char>> {
    if let Some(key) = only_char(combination) {
        return Ok(vec![key]);
    }
    let one = |name: &str| {
        let named = NAMED.iter().find(|(known, _)| *known == name).map(|(_, key)| *key);
        only_char(name).or(named).with_context(|| format!("there is no key '{name}' in '{combination}'"))
    };
    combination.split('+').map(one).collect()
}

fn only_char(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_characters_or_names_and_may_be_combined() {
        assert_eq!(parse("j").unwrap(), ['j']);
        assert_eq!(parse("+").unwrap(), ['+']);
        assert_eq!(parse("Enter").unwrap(), ['\u{e007}']);
        assert_eq!(parse("Control+Shift+k").unwrap(), ['\u{e009}', '\u{e008}', 'k']);
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = parse("Shift+Return").unwrap_err().to_string();
        assert_eq!(error, "there is no key 'Return' in 'Shift+Return'");
        assert!(parse("").is_err() && parse("Shift+").is_err());
    }
}
