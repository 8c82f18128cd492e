//! `disbatch-screenshots`: what the pages look like.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use disbatch_tests::screenshots::{self, Args};

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(screenshots::run(Args::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_reads = writeln!(io::stderr(), "disbatch-screenshots: {error:#}");
            ExitCode::FAILURE
        }
    }
}
