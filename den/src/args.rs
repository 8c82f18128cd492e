//! The command line.

use std::io;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{CommandFactory, Parser};
use disbatch_core::config::DEFAULT_PATH;

const EXIT_CODES: &str = "\
Signals: SIGTERM or SIGINT stops claiming, gives back what no runner has started, and ends; running tasks
go on in their own processes. With --drain it waits for these first. A second signal ends at once.

Exit status:
  0  ended by a signal; with --check-config: it can be used
  2  wrong command line
  3  the configuration cannot be used";

/// Runs the tasks of Disbatch queues on this node.
#[derive(Debug, Parser)]
#[command(name = "den", version, after_help = EXIT_CODES)]
pub struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,

    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// At the first signal, stay until every task of this node has ended; claim nothing more
    #[arg(long)]
    pub drain: bool,

    /// With --drain: tasks whose plugins can be interrupted stop, and go on elsewhere
    #[arg(long, requires = "drain")]
    pub interrupt: bool,

    /// Fire no schedules from here: `schedules: false` of the configuration
    #[arg(long, env = "DISBATCH_DISABLE_CRON", value_parser = FalseyValueParser::new())]
    pub disable_cron: bool,

    /// Run QueueBalance too, if `balance.enabled` is set; any number of nodes may, and one at a time works
    #[arg(long)]
    pub balance: bool,

    /// Check the configuration without the database, and end: with 0 if it can be used, else with 3
    #[arg(long)]
    pub check_config: bool,

    /// Print the manual page, for packages
    #[arg(long, exclusive = true, hide = true)]
    pub man_page: bool,
}

impl Args {
    pub fn print_man_page() -> io::Result<()> {
        clap_mangen::Man::new(Self::command()).render(&mut io::stdout())
    }
}
