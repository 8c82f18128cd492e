//! `den`: the execution node. Claims tasks and has runners execute them.

mod args;
mod backoff;
mod launch;
mod node;
mod plugins;
mod run;
mod schedule;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run::run(args::Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure);
            failure.exit_code()
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the one line that says why the process ends, whatever the log level"
)]
fn report(failure: &run::Failure) {
    eprintln!("den: {failure}");
}
