//! `disbatch-faults`: what Disbatch does while everything around it breaks.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use disbatch_tests::faults::{self, args::Args};

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(faults::run(Args::parse())).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _nobody_reads = writeln!(io::stderr(), "disbatch-faults: {error:#}");
            ExitCode::FAILURE
        }
    }
}
