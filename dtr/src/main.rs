//! `dtr`: the task runner. Runs one claimed task and stores what came out.

mod args;
mod capture;
mod control;
mod deliver;
mod echo;
mod live;
mod plugin;
mod relay;
mod retry;
mod run;
mod verdict;

use std::process::ExitCode;

use clap::Parser;
use disbatch_core::telemetry::last_words;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = args::Args::parse();
    match run::run(args).await {
        Ok(ending) => ending.exit_code(),
        Err(failure) => {
            last_words("dtr", &failure);
            failure.exit_code()
        }
    }
}
