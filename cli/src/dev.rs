//! `disbatch dev`: a DEN, a DCI and a private MongoDB server on this machine, started and stopped together.

mod console;
mod demo;
mod folder;
mod process;
mod ready;
mod runners;
mod stack;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::args::ConnectionOptions;
use crate::signals::Signals;
use crate::status::INTERRUPTED;
use console::Console;
use folder::Folder;
use stack::Stack;

/// Options of `disbatch dev`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of the data, the logs and the configuration [default: ~/.local/share/disbatch/dev]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Port of the DCI on 127.0.0.1
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Port of MongoDB on 127.0.0.1 [default: the one before, else any that is free]
    #[arg(long, value_name = "N")]
    mongo_port: Option<u16>,
    /// Create two queues, run 20 tasks in them and show what comes out
    #[arg(long)]
    demo: bool,
    /// Stop after the demo; the exit status is 0 only if all went as expected
    #[arg(long, requires = "demo")]
    exit: bool,
}

/// Runs until a signal, the end of the demo with `--exit`, or a failure. Nothing is left running.
///
/// The exit status is 0 after a signal or a demo that went well, 130 if a signal broke off a demo with
/// `--exit`, and 1 after a failure.
///
/// # Errors
/// The data folder cannot be used, or another `disbatch dev` uses it.
pub async fn run(args: Args, connection: ConnectionOptions) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    // Runners outlive their DEN; as their next parent we see when the last has ended.
    nix::sys::prctl::set_child_subreaper(true).context("cannot adopt task runners")?;
    let folder = Folder::open(args.data.as_deref())?;
    let console = Console::new();
    let mut stack = Stack::new(console.clone(), args.port, connection)?;
    let outcome = tokio::select! {
        outcome = Box::pin(session(&args, &folder, &mut stack)) => outcome,
        () = signals.first() => Ok(if args.exit { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }),
    };
    let code = outcome.unwrap_or_else(|error| {
        console.error(&format!("disbatch dev: {error:#}"));
        ExitCode::FAILURE
    });
    // The signal after the one that stopped us, or the first if we stop by ourselves.
    let interrupted = signals.first_has_come();
    let impatient = async { if interrupted { signals.second().await } else { signals.first().await } };
    Box::pin(stack.stop(impatient)).await;
    Ok(code)
}

async fn session(args: &Args, folder: &Folder, stack: &mut Stack) -> anyhow::Result<ExitCode> {
    stack.start(folder, args.mongo_port).await?;
    let console = stack.console().clone();
    let client = stack.client().clone();
    if !args.exit {
        for line in stack.introduction(folder) {
            console.line(&line);
        }
    }
    let url = stack.url().to_owned();
    let work = async {
        if args.demo {
            let as_expected = Box::pin(demo::run(&console, &client, &url)).await?;
            if args.exit {
                return Ok(if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
        console.line("following the logs; ^C stops everything");
        std::future::pending().await
    };
    tokio::select! {
        outcome = work => outcome,
        death = stack.death() => Err(death),
        never = runners::bury() => match never {},
    }
}
