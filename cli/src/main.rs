//! `disbatch`: the command line of Disbatch. It speaks HTTP to a DCI; what works without one is done by `disbatch-local`.

#![expect(clippy::print_stderr, reason = "printing is what a command line is for")]

mod command;
mod local;

use std::ffi::OsString;
use std::process::ExitCode;

// As the commands know them.
use disbatch_cli::{api, args, output, signals, status};

#[tokio::main]
async fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    match args::parse(&mut words) {
        Ok(arguments) => output::exit_code(command::run(arguments, &words).await),
        Err(stopped) => stopped,
    }
}
