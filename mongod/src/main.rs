//! `disbatch-mongod`: a MongoDB server for tests and development.

use std::process::ExitCode;

use clap::Parser;
use disbatch_mongod::run::{Args, run};

#[tokio::main]
#[expect(clippy::print_stderr, reason = "errors of a command go there")]
async fn main() -> ExitCode {
    match Box::pin(run(Args::parse())).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("disbatch-mongod: {error:#}");
            ExitCode::from(125)
        }
    }
}
