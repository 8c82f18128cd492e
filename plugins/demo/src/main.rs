//! `Disbatch::Plugin::Demo`: prints a line, fails or fills its output, by the letters of `params.commands`.

mod commands;
mod report;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use disbatch_plugin::{Error, Task};

use commands::Command;
use report::Run;

fn main() -> ExitCode {
    disbatch_plugin::run(demo)
}

/// Does the task's commands and reports on them.
fn demo(task: &mut Task) -> Result<(), Error> {
    let started = epoch_seconds();
    let commands = commands::written_out(&task.params()["commands"]);
    let letters = commands::letters(&commands).map_err(Error::failed)?;
    let (errors, failure) =
        perform(&letters).map_err(|error| Error::failed(format!("cannot write the output: {error}")))?;
    if report::wanted(task) {
        let run = Run { commands, errors, failure, started, completed: epoch_seconds() };
        task.report(report::report(task, &run))?;
    }
    failure.map_or(Ok(()), |failure| Err(Error::failed(failure)))
}

/// Does what the letters tell, and returns the number of errors and the failure, if any.
///
/// The failure's line is not written here: it is the error that the plugin ends with.
fn perform(letters: &str) -> io::Result<(u32, Option<&'static str>)> {
    let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr().lock());
    let mut errors = 0;
    for command in commands::commands(letters) {
        match *command {
            Command::Say(line) => writeln!(stdout, "{line}")?,
            Command::Complain(line) => {
                errors += 1;
                writeln!(stderr, "{line}")?;
            }
            Command::FillOutput(character, mebibytes) => commands::fill(&mut stdout, character, mebibytes)?,
            Command::FillErrors(character, mebibytes) => commands::fill(&mut stderr, character, mebibytes)?,
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
