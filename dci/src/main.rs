//! `dci`: the web server of Disbatch. JSON for programs, pages for people, at the same addresses.

mod accept;
mod api;
mod args;
mod bulk;
mod counts;
mod error;
mod events;
mod fields;
mod json;
mod legacy;
mod openapi;
mod origin;
mod output;
mod params;
mod query;
mod raw;
mod rows;
mod server;
mod state;
mod static_files;
mod tail;
mod ui;
mod values;
mod watch;

use std::process::ExitCode;

use clap::Parser;

// Requests have threads of their own; these are for what goes on behind them.
#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    server::run(args::Arguments::parse()).await
}
