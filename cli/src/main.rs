//! `disbatch`: the command line of Disbatch. It speaks HTTP to a DCI; what works without one is done by `disbatch-local`.

#![expect(clippy::print_stderr, reason = "printing is what a command line is for")]

mod command;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::anyhow;

// As the commands know them.
use disbatch_cli::{Signals, api, args, input, output, status};

#[tokio::main]
async fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    match args::parse(&mut words) {
        Ok(arguments) => output::exit_code(command::run(arguments, &words).await),
        Err(stopped) => stopped,
    }
}

const LOCAL: &str = "disbatch-local";

/// Becomes that program, with the same words, the first of which is how this one was called: to whoever waits for it, and to
/// whoever sends it a signal, it is the same process. Comes back only if that cannot be.
fn become_local(words: &[OsString]) -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name(LOCAL),
        Err(error) => return anyhow!(error).context("cannot tell where this program is"),
    };
    let mut command = Command::new(&program);
    if let Some((own, arguments)) = words.split_first() {
        command.arg0(own).args(arguments);
    }
    let error = anyhow!(command.exec());
    error.context(format!("cannot start {}, which does this", program.display()))
}
