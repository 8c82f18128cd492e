//! `Disbatch::Plugin::Shell`: runs `params.command`.
//!
//! The command takes the place of this process, so that its exit code and signals are the task's own, and the
//! control descriptor is open for it.
//!
//! A runner starts the command by itself, without this program, where it can (`command_in_params` in the manifest). Whatever it
//! cannot start it leaves to this program, which says why.

use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use disbatch_plugin::Task;
use disbatch_shell::Params;

const WRONG_PARAMS: u8 = 2;
/// The exit codes of shells for a command that cannot be run, and for one that there is not.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let (code, message) = replace_process();
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::from(code)
}

/// Becomes the command; returns only if that fails, with the exit code and what to say.
fn replace_process() -> (u8, String) {
    let params =
        Task::read().map_err(|error| error.to_string()).and_then(|task| Params::check(task.params()));
    let params = match params {
        Ok(params) => params,
        Err(message) => return (WRONG_PARAMS, message),
    };
    // Not left to the command, whose error would look as if the program were missing.
    if let Some(cwd) = &params.cwd
        && let Err(error) = std::env::set_current_dir(cwd)
    {
        return (WRONG_PARAMS, format!("params.cwd is no folder to run in: {cwd}: {error}"));
    }
    let Some((program, arguments)) = params.command.split_first() else {
        return (WRONG_PARAMS, "params.command must name a program".to_owned());
    };
    // The task has been read from standard input, and there is nothing else to read.
    let error = Command::new(program).args(arguments).envs(params.env).stdin(Stdio::null()).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    (code, format!("cannot run '{program}': {error}"))
}
