//! `Disbatch::Plugin::Demo`: prints a line, fails or fills its output, by the letters of `params.commands`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use disbatch_plugin::{Error, Task};
use serde_json::{Value, json};

fn main() -> ExitCode {
    disbatch_plugin::run(demo)
}

fn demo(task: &mut Task) -> Result<(), Error> {
    let started = epoch_seconds();
    let commands = written_out(&task.params()["commands"]);
    let letters = letters(&commands).map_err(Error::failed)?;
    let (errors, failure) =
        perform(&letters).map_err(|error| Error::failed(format!("cannot write the output: {error}")))?;
    if is_report_wanted(task) {
        let run = Run { commands, errors, failure, started, completed: epoch_seconds() };
        task.report(report(task, &run))?;
    }
    failure.map_or(Ok(()), |failure| Err(Error::failed(failure)))
}

/// Does what the letters tell, and returns the number of errors and the failure, if any.
///
/// The failure's line is not written here: it is the error that the plugin ends with.
fn perform(letters: &str) -> io::Result<(u32, Option<&'static str>)> {
    let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr().lock());
    let mut errors = 0;
    for command in commands(letters) {
        match *command {
            Command::Say(line) => writeln!(stdout, "{line}")?,
            Command::Complain(line) => {
                errors += 1;
                writeln!(stderr, "{line}")?;
            }
            Command::FillOutput(character, mebibytes) => fill(&mut stdout, character, mebibytes)?,
            Command::FillErrors(character, mebibytes) => fill(&mut stderr, character, mebibytes)?,
            Command::Fail(line) => return Ok((errors + 1, Some(line))),
        }
    }
    Ok((errors, None))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a plugin is a program of its own and has no clock to be given"
)]
fn epoch_seconds() -> u64 {
    // A clock before 1970 is not worth failing the task for.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
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
fn commands(letters: &str) -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(move |(letter, _)| letters.contains(*letter)).map(|(_, command)| command)
}

/// The value of `params.commands` with its abbreviation `*` written out.
///
/// Only a value that is nothing but `*` is one; a star among letters is ignored like any unknown letter.
fn written_out(commands: &Value) -> Value {
    if commands == "*" { Value::from("abc") } else { commands.clone() }
}

/// The letters of a value. Numbers and truth values count as their text in Perl.
fn letters(commands: &Value) -> Result<String, String> {
    match commands {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(u8::from(*truth).to_string()),
        Value::Array(_) | Value::Object(_) => Err(format!("params.commands must be text, got {commands}")),
    }
}

fn fill(mut to: impl Write, character: u8, mebibytes: usize) -> io::Result<()> {
    let block = vec![character; MIB];
    (0..mebibytes).try_for_each(|_| to.write_all(&block))
}

const VERSION: &str = "1.0.0";

/// What happened, and when in epoch seconds.
#[derive(Debug)]
struct Run {
    /// `params.commands`, written out.
    commands: Value,
    errors: u32,
    /// The message of the failure that ended the task.
    failure: Option<&'static str>,
    started: u64,
    completed: u64,
}

/// Whether the task wants a report: not if `params.noreport` is true in Perl's sense.
fn is_report_wanted(task: &Task) -> bool {
    match &task.params()["noreport"] {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty() || text == "0",
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// The document that the plugin leaves in the collection `reports`: the report of a run, with the keys that Disbatch 4 writes.
fn report(task: &Task, run: &Run) -> Value {
    let mut report = json!({
        "commands": run.commands,
        "completed": run.completed,
        "counter": task.params()["counter"],
        "errors": run.errors,
        "queue_id": task.document()["queue"],
        "started": run.started,
        "status": if run.failure.is_none() { "SUCCESS" } else { "FAILED" },
        "task_id": task.document()["_id"],
        "version": VERSION,
    });
    if let Some(failure) = run.failure {
        report["error"] = Value::from(format!("Task failed: {failure}\n"));
    }
    report
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

    #[test]
    fn noreport_is_true_as_perl_sees_it() {
        let wanted = |value: &str| {
            is_report_wanted(&format!("{{\"params\":{{\"noreport\":{value}}}}}").parse().unwrap())
        };
        for value in ["null", "false", "0", "0.0", "\"\"", "\"0\""] {
            assert!(wanted(value), "{value}");
        }
        for value in ["true", "1", "-0.5", "\"no\"", "\"0.0\"", "[]", "{}"] {
            assert!(!wanted(value), "{value}");
        }
    }

    #[test]
    fn no_params_want_a_report_too() {
        assert!(super::is_report_wanted(&"{\"params\":null}".parse().unwrap()));
    }

    #[test]
    fn the_manifest_has_the_same_version() {
        let manifest: Value = serde_json::from_str(include_str!("../plugin.json")).unwrap();
        assert_eq!(manifest["version"], VERSION);
        assert_eq!(manifest["command"][0], env!("CARGO_PKG_NAME"));
    }
}
