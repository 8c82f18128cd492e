//! `disbatch dev`: a DEN, a DCI and a private MongoDB server on this machine, started and stopped together.

mod console;
mod demo;
mod folder;
mod process;
mod readiness;
mod runners;
mod stack;

use std::process::ExitCode;

use anyhow::Context;
use disbatch_cli::Signals;
use disbatch_cli::args::{ConnectionOptions, DevOptions};
use disbatch_cli::status::INTERRUPTED;

use console::Console;
use folder::Folder;
use stack::Stack;

/// Runs until a signal, the end of the demo with `--exit`, or a failure. Nothing is left running.
///
/// The exit status is 0 after a signal or a demo that went well, 130 if a signal broke off a demo with
/// `--exit`, and 1 after a failure.
pub async fn run(args: DevOptions, connection: ConnectionOptions) -> anyhow::Result<ExitCode> {
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

async fn session(args: &DevOptions, folder: &Folder, stack: &mut Stack) -> anyhow::Result<ExitCode> {
    stack.start(folder, args.mongo_port, &args.plugins).await?;
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
