//! `den`: the execution node. Claims tasks and has runners execute them.

mod addresses;
mod args;
mod backoff;
mod boot_time;
mod canaries;
mod capacity;
mod check;
mod chores;
mod claims;
mod deaths;
mod external;
mod folders;
mod handover;
mod holds;
mod isolation;
mod launch;
mod limits;
mod monitoring;
mod node;
mod pace;
mod plugins;
mod processes;
mod queues;
mod ramp;
mod rivals;
mod run;
mod runner;
mod runners;
mod schedule;
mod schedule_state;
mod scribe;
mod sharing;
mod starts;
mod stats;
mod supervise;
mod tidy;
mod upkeep;
mod vitals;
mod workers;

use std::process::ExitCode;

use clap::Parser;
use disbatch_core::descriptors::close_inherited;
use disbatch_core::telemetry::last_words;

fn main() -> ExitCode {
    // Before anything else is opened: runners, and with them plugins, would inherit what the DEN has inherited.
    match close_inherited(&[]) {
        Ok(()) => work(args::Args::parse()),
        Err(error) => {
            last_words("den", &error);
            run::Failure::from(error).exit_code()
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn work(args: args::Args) -> ExitCode {
    let ended = if args.man_page {
        args::Args::print_man_page().map_err(run::Failure::from)
    } else if args.check_config {
        check::check(&args).await
    } else {
        Box::pin(run::run(args)).await
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            last_words("den", &failure);
            failure.exit_code()
        }
    }
}
