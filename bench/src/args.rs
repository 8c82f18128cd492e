//! The command line.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Parser;

const ABOUT: &str = "\
The programs dci, den, dtr and disbatch-plugin-demo are taken from beside this one; a private MongoDB server is
started, or fetched and started where there is none.

Exit status:
  0  everything was measured, whatever the figures are
  1  something failed: a task that did not succeed, for instance
  2  wrong command line";

/// Measures how fast Disbatch runs tasks that do nothing.
#[derive(Debug, Clone, Parser)]
#[command(name = "disbatch-bench", version, after_help = ABOUT)]
pub struct Args {
    /// Only the figures whose names contain this: drain, floor, latency, queues
    #[arg(value_name = "FIGURE")]
    pub filter: Option<String>,

    /// Tasks, or processes, in each round
    #[arg(long, value_name = "N", default_value = "500")]
    pub tasks: NonZeroU32,

    /// How many run at once
    #[arg(long, value_name = "N", default_value = "8")]
    pub threads: NonZeroU32,

    /// How often each figure is measured
    #[arg(long, value_name = "N", default_value = "5")]
    pub rounds: NonZeroU32,

    /// Where to write the figures for programs
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    pub json: PathBuf,
}
