//! The letters of `params.commands` and what each does.

use std::io::{self, Write};

use serde_json::Value;

/// What one letter does.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Writes a line to standard output.
    Say(&'static str),
    /// Writes a line to standard error and counts an error.
    Complain(&'static str),
    /// Writes that many MiB of a character to standard output.
    FillOutput(u8, usize),
    /// Writes that many MiB of a character to standard error.
    FillErrors(u8, usize),
    /// Fails the task with a line on standard error, and counts an error.
    Fail(&'static str),
}

/// All letters, in the order in which they are looked for.
///
/// As in Disbatch 4 neither the order of the letters in `commands` nor their number matters, and failing comes
/// last: "cab" does the same as "abc".
const COMMANDS: [(char, Command); 11] = [
    ('a', Command::Say("This is command 'a' for apple.")),
    ('b', Command::Complain("This is command 'b' for banana.")),
    ('1', Command::FillOutput(b'1', 1)),
    ('7', Command::FillOutput(b'7', 7)),
    ('8', Command::FillOutput(b'8', 8)),
    ('e', Command::FillOutput(b'e', 15)),
    ('A', Command::FillErrors(b'A', 1)),
    ('B', Command::FillErrors(b'B', 7)),
    ('C', Command::FillErrors(b'C', 8)),
    ('E', Command::FillErrors(b'E', 15)),
    ('c', Command::Fail("This is command 'c' for cry.")),
];

const MIB: usize = 1024 * 1024;

/// What `letters` tell to do, in order.
pub fn commands(letters: &str) -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(move |(letter, _)| letters.contains(*letter)).map(|(_, command)| command)
}

/// The value of `params.commands` with its abbreviation `*` written out.
///
/// Only a value that is nothing but `*` is one; a star among letters is ignored like any unknown letter.
pub fn written_out(commands: &Value) -> Value {
    if commands == "*" { Value::from("abc") } else { commands.clone() }
}

/// The letters of a value. Numbers and truth values count as their text in Perl.
///
/// # Errors
/// The value is a list or an object; the error says so.
pub fn letters(commands: &Value) -> Result<String, String> {
    match commands {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(u8::from(*truth).to_string()),
        Value::Array(_) | Value::Object(_) => Err(format!("params.commands must be text, got {commands}")),
    }
}

/// Writes `mebibytes` MiB of `character`.
pub fn fill(mut to: impl Write, character: u8, mebibytes: usize) -> io::Result<()> {
    let block = vec![character; MIB];
    (0..mebibytes).try_for_each(|_| to.write_all(&block))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_is_fixed_and_failing_comes_last() {
        let all: Vec<_> = commands("cECBAe871ba").collect();
        let expected: Vec<_> = COMMANDS.iter().map(|(_, command)| command).collect();
        assert_eq!(all, expected);
        assert!(matches!(expected.last(), Some(Command::Fail(_))));
    }

    #[test]
    fn unknown_and_repeated_letters_do_nothing() {
        let apple = Command::Say("This is command 'a' for apple.");
        assert_eq!(commands("xaaZ a☃*").collect::<Vec<_>>(), [&apple]);
        assert_eq!(commands("").count(), 0);
    }

    #[test]
    fn only_a_lone_star_is_an_abbreviation() {
        assert_eq!(written_out(&json!("*")), "abc");
        assert_eq!(written_out(&json!("a*")), "a*");
        assert_eq!(written_out(&Value::Null), Value::Null);
    }

    #[test]
    fn values_that_are_no_text_count_as_their_text() {
        assert_eq!(letters(&Value::Null), Ok(String::new()));
        assert_eq!(letters(&json!(17)), Ok("17".to_owned()));
        assert_eq!(letters(&json!(true)), Ok("1".to_owned()));
        assert_eq!(letters(&json!(["a"])), Err("params.commands must be text, got [\"a\"]".to_owned()));
    }

    #[test]
    fn filling_writes_the_exact_size() {
        let mut text = Vec::new();
        fill(&mut text, b'7', 7).unwrap();
        assert_eq!(text.len(), 7 * MIB);
        assert!(text.iter().all(|byte| *byte == b'7'));
    }
}
