//! `disbatch-bench`: how fast Disbatch runs tasks that do nothing, and what it costs.

mod args;
mod bare;
mod compare;
mod figure;
mod machine;
mod peer;
mod progress;
mod report;
mod results;
mod run;
mod simulation;
mod statistics;
mod world;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run::run(args::Args::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::say(&format!("disbatch-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
