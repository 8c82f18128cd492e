//! `disbatch-container`: runs the tasks of plugins with the engine `container`, by the interface of Docker, which Podman
//! has as well.
//!
//! A runner starts it as it starts any plugin, and what holds for plugins holds for it: it reads the task from its
//! standard input, its output is the task's, and SIGTERM means that the task is to end. What it is told besides is in
//! [`told`]. With the argument `tidy` it removes the containers of those that were killed.
//!
//! The interface is spoken here and not by a client of its types: those refuse whole answers for a word that they do not
//! know, and Podman has some.

mod address;
mod api;
mod args;
mod channel;
mod credentials;
mod environment;
mod image;
mod input;
mod labels;
mod memory;
mod output;
mod process;
mod request;
mod run;
mod settings;
mod tidy;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use args::{Args, Command};
use clap::Parser;
use disbatch_adapter::note;

/// The exit code where no container has run, as Docker's own client has it.
const CANNOT_RUN: u8 = 125;

/// How long a write that nobody reads may hold up the end.
const LAST_MOMENT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            note(&format_args!("cannot begin: {error}"));
            return ExitCode::from(CANNOT_RUN);
        }
    };
    let code = match args.command {
        None => runtime.block_on(Box::pin(run::run(io::stdin().lock()))),
        Some(Command::Tidy(options)) => runtime.block_on(Box::pin(tidy::command(options))),
    };
    runtime.shutdown_timeout(LAST_MOMENT);
    ExitCode::from(code)
}
