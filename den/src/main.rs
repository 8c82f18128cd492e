//! `den`: the execution node. Claims tasks and has runners execute them.

mod capacity;
mod chores;
mod claims;
mod continuity;
mod handover;
mod holdings;
mod launch;
mod limits;
mod monitoring;
mod node;
mod pace;
mod plugins;
mod processes;
mod queues;
mod run;
mod runner;
mod runners;
mod schedule;
mod scribe;
mod sharing;
mod slots;
mod starts;
mod supervise;
mod tidy;
mod upkeep;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{CommandFactory, Parser};
use disbatch_core::config::DEFAULT_PATH;
use disbatch_core::lock;
use disbatch_core::process::{close_inherited, runtime};
use disbatch_core::telemetry::last_words;

const EXIT_CODES: &str = "\
Signals: SIGTERM or SIGINT stops claiming, gives back what no runner has started, and ends; running tasks
go on in their own processes. With --drain it waits for these first. A second signal ends at once.

Exit status:
  0  ended by a signal; with --check-config: it can be used
  2  wrong command line
  3  the configuration cannot be used
  4  cannot listen, open its log or look up the user of run_as: that may pass by itself";

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

    /// Check the configuration without the database, and end: with 0 if it can be used, else with 3 or 4
    #[arg(long)]
    pub check_config: bool,

    /// Print the manual page, for packages
    #[arg(long, exclusive = true, hide = true)]
    pub man_page: bool,
}

fn main() -> ExitCode {
    // Before anything else is opened: runners, and with them plugins, would inherit what the DEN has inherited.
    let closed = close_inherited(&[]).map_err(run::Failure::from);
    match closed.and_then(|()| work(Args::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            last_words("den", &failure);
            ExitCode::from(failure.status()) // See `EXIT_CODES`.
        }
    }
}

fn work(args: Args) -> Result<(), run::Failure> {
    if args.man_page {
        return Ok(clap_mangen::Man::new(Args::command()).render(&mut io::stdout())?);
    }
    runtime()?.block_on(async {
        match args.check_config {
            true => run::check(&args).await,
            false => Box::pin(run::run(args)).await,
        }
    })
}
