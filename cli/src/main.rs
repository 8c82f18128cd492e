//! `disbatch`: the command line of Disbatch. It speaks HTTP to a DCI; `create-users`, `dev` and `plugin` work without one.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a command line is for")]

mod api;
mod args;
mod command;
mod dev;
mod output;
mod signals;
mod status;

use std::process::ExitCode;

/// The exit status of everything that went wrong, as Perl's `die` has it.
const FAILED: u8 = 255;

fn main() -> ExitCode {
    // A plugin that is run here has a guard, which is this program again.
    disbatch_dtr::as_part_of_runner().unwrap_or_else(work)
}

#[tokio::main]
async fn work() -> ExitCode {
    let arguments = match args::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(stopped) => return stopped,
    };
    command::run(arguments).await.unwrap_or_else(|error| {
        if !output::is_broken_pipe(&error) {
            output::say(&format!("{error:#}"));
        }
        ExitCode::from(FAILED)
    })
}
