//! The command line.

use std::num::NonZeroU32;

use clap::Parser;

use super::fault::Fault;

const ABOUT: &str = "\
The programs dci, den, dtr and disbatch-faults-plugin are taken from beside this one; a replica set of three
private MongoDB servers is started, or fetched and started where there is none.

Exit status:
  0  every invariant held
  1  one did not, or something else failed
  2  wrong command line";

/// Runs tasks while everything that can break does, and checks afterwards what must always hold.
#[derive(Debug, Clone, Parser)]
#[command(name = "disbatch-faults", version, after_help = ABOUT)]
pub struct Args {
    /// How many tasks
    #[arg(long, value_name = "N", default_value = "2000")]
    pub tasks: NonZeroU32,

    /// For how many seconds faults are injected
    #[arg(long, value_name = "SECONDS", default_value = "150")]
    pub duration: NonZeroU32,

    /// Repeats the choices of an earlier run [default: another one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Inject this kind of fault alone; may be given several times
    #[arg(long, value_name = "FAULT")]
    pub only: Vec<Fault>,

    /// At the end leave everything as it is for a look, until a ^C
    #[arg(long)]
    pub keep: bool,
}
