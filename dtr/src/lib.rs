//! `dtr`: the task runner. Runs claimed tasks and stores what came out.
//!
//! This is the whole of it; `main.rs` only calls [`main`]. Nothing else is for others, but for [`input`], which tests
//! need that make up what plugins might say, and [`local`], by which the command line runs a plugin.

mod answer;
mod capture;
mod confine;
mod control;
mod custody;
mod deliver;
mod descriptors;
mod early_upload;
mod facts;
mod files;
mod folder;
mod guard;
pub mod input;
mod isolation;
mod ledger;
mod link;
mod live;
pub mod local;
mod outcome;
mod plugin;
mod post;
mod recorder;
mod relay;
mod retry;
mod run;
mod secrets;
mod session;
mod setup;
mod steps;
mod storage;
mod supervision;
mod warm;
mod work;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use disbatch_core::lock;
use disbatch_core::process::{close_inherited, forbid_core_dumps, runtime};
use disbatch_core::telemetry::last_words;

use crate::setup::{Args, Ending, Failure};

pub fn main() -> ExitCode {
    // Before anything else: a guard is to be small and quick, and so is the way from there to a plugin.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == guard::WORD => guard::process::main(arguments),
        Some(first) if first == confine::WORD => confine::main(arguments),
        _ => run_tasks(),
    }
}

/// Does what a guard does, or what comes between it and a plugin, in a program that runs plugins by [`local`]: it is started
/// again as that. Returns its exit status; `None`: it was started as something else.
pub fn as_part_of_runner() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let (own, first) = (arguments.next()?, arguments.next()?);
    if own == guard::ARG0 && first == guard::WORD {
        return Some(guard::process::main(arguments));
    }
    (own == confine::ARG0 && first == confine::WORD).then(|| confine::main(arguments))
}

fn run_tasks() -> ExitCode {
    let args = Args::parse();
    let ended = match args.man_page {
        true => {
            let printed = clap_mangen::Man::new(Args::command()).render(&mut io::stdout());
            printed.map(|()| Ending::Stored).map_err(Failure::Setup)
        }
        false => prepare(args.link).map_err(Failure::Setup).and_then(|()| work(args)),
    };
    match ended {
        Ok(ending) => ending.exit_code(),
        Err(failure) => {
            last_words("dtr", &failure);
            failure.exit_code()
        }
    }
}

/// Keeps from plugins what this process has inherited, besides the link, and from the disk what it knows.
fn prepare(link: Option<i32>) -> io::Result<()> {
    close_inherited(link.as_slice())?;
    // One would have passwords of the database and secure parameters of tasks in it. Plugins may be allowed theirs.
    forbid_core_dumps()
}

fn work(args: Args) -> Result<Ending, Failure> {
    runtime().map_err(Failure::Setup)?.block_on(async {
        match args.link {
            None => Box::pin(run::run(args)).await,
            Some(link) => session::run(&args, link).await,
        }
    })
}
