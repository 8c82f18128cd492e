//! `den`: the execution node. Claims tasks and has runners execute them.

mod addresses;
mod args;
mod arrays;
mod auditor;
mod backoff;
mod balance;
mod boot_time;
mod claims;
mod clockwork;
mod deaths;
mod external;
mod folders;
mod gates;
mod isolation;
mod janitor;
mod launch;
mod node;
mod pace;
mod plugins;
mod processes;
mod queues;
mod ramp;
mod rivals;
mod run;
mod runner;
mod schedule;
mod scheduled;
mod scribe;
mod sharing;
mod starts;
mod stats;
mod supervise;
mod tidy;
mod upkeep;
mod workers;

use std::process::ExitCode;

use clap::Parser;
use disbatch_core::telemetry::last_words;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Box::pin(run::run(args::Args::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            last_words("den", &failure);
            failure.exit_code()
        }
    }
}
