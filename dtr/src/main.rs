//! `dtr`: the task runner. Runs claimed tasks and stores what came out.

mod args;
mod boot_time;
mod capture;
mod control;
mod custody;
mod deliver;
mod early;
mod echo;
mod facts;
mod failure;
mod folder;
mod guard;
mod inherited;
mod installed;
mod ledger;
mod link;
mod live;
mod outbox;
mod outcome;
mod places;
mod plugin;
mod relay;
mod retry;
mod run;
mod session;
mod setup;
mod supervision;
mod verdict;
mod warm;
mod work;

use std::process::ExitCode;

use clap::Parser;
use disbatch_core::telemetry::last_words;

fn main() -> ExitCode {
    // Before anything else: a guard is to be small and quick.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == guard::WORD) {
        return guard::process::main(arguments);
    }
    run_task()
}

#[tokio::main(flavor = "current_thread")]
async fn run_task() -> ExitCode {
    let args = args::Args::parse();
    let ended = match args.link {
        None => run::run(args).await,
        Some(link) => session::run(&args, link).await,
    };
    match ended {
        Ok(ending) => ending.exit_code(),
        Err(failure) => {
            last_words("dtr", &failure);
            failure.exit_code()
        }
    }
}
