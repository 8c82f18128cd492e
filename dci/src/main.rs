//! `dci`: starts the web server.

use std::process::ExitCode;

use clap::Parser;
use disbatch_dci::Arguments;

// Requests have threads of their own; these are for what goes on behind them.
#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    disbatch_dci::run(Arguments::parse()).await
}
