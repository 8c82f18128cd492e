//! `disbatch-mongod`: a MongoDB server for tests and development.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use disbatch_mongod::server::Server;
use disbatch_mongod::{locate, testing};
use mongodb::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
#[expect(clippy::print_stderr, reason = "errors of a command go there")]
async fn main() -> ExitCode {
    match Box::pin(run(Args::parse())).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("disbatch-mongod: {error:#}");
            ExitCode::from(125)
        }
    }
}

/// Finds MongoDB's server, fetches it if there is none, and has servers at hand for tests.
#[derive(Debug, Parser)]
#[command(name = "disbatch-mongod", version)]
enum Args {
    /// Prints where mongod is, after fetching it if it has to be.
    Path,
    /// Runs a command with a standalone server and a replica set of its own, which end with it.
    ///
    /// The command finds them in DISBATCH_TEST_STANDALONE and DISBATCH_TEST_REPLICA_SET; its status becomes
    /// that of this command, or 128 and the signal that ended it.
    Run {
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[expect(clippy::print_stdout, reason = "the path is what `path` is for")]
async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Path => {
            println!("{}", find().await?.display());
            Ok(ExitCode::SUCCESS)
        }
        Args::Run { command } => with_servers(&command).await,
    }
}

#[expect(clippy::print_stderr, reason = "fetching takes a while, so a person is told")]
async fn find() -> anyhow::Result<std::path::PathBuf> {
    let search = || locate::find_or_fetch(|message| eprintln!("disbatch-mongod: {message}"));
    tokio::task::spawn_blocking(search).await.context("the search for mongod broke off")?
}

async fn with_servers(command: &[OsString]) -> anyhow::Result<ExitCode> {
    find().await?;
    let (standalone, replica_set) =
        tokio::try_join!(testing::start_ephemeral(false), testing::start_ephemeral(true))?;
    let servers = [connect(&standalone).await?, connect(&replica_set).await?];
    let (program, arguments) = command.split_first().context("there is no command")?;
    let spawned = Command::new(program)
        .args(arguments)
        .env(testing::STANDALONE, standalone.uri())
        .env(testing::REPLICA_SET, replica_set.uri())
        .spawn()
        .with_context(|| format!("cannot run {}", program.to_string_lossy()));
    let outcome = match spawned {
        Ok(child) => tokio::select! {
            status = wait_forwarding_signals(child) => status,
            never = keep_tidy(&servers) => match never {},
        },
        Err(error) => Err(error),
    };
    tokio::try_join!(standalone.stop(), replica_set.stop())?;
    Ok(exit_code(outcome?))
}

async fn connect(server: &Server) -> anyhow::Result<Client> {
    Client::with_uri_str(server.uri()).await.with_context(|| format!("cannot connect to {}", server.uri()))
}

/// Drops what ended tests leave, every other second.
async fn keep_tidy(servers: &[Client]) -> Infallible {
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        for server in servers {
            // A busy server is asked again.
            let _ = testing::drop_abandoned(server).await;
        }
    }
}

async fn wait_forwarding_signals(mut child: Child) -> anyhow::Result<ExitStatus> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let received = tokio::select! {
            status = child.wait() => return status.context("cannot wait for the command"),
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
        };
        // A terminal has sent its ^C to the command too.
        let from_terminal = received == Signal::SIGINT && std::io::IsTerminal::is_terminal(&std::io::stdin());
        if let (false, Some(pid)) = (from_terminal, child.id().and_then(|pid| i32::try_from(pid).ok())) {
            // It may have ended a moment ago.
            let _ = kill(Pid::from_raw(pid), received);
        }
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        let args =
            Args::try_parse_from(["disbatch-mongod", "run", "--", "cargo", "test", "--", "-x"]).unwrap();
        let Args::Run { command } = args else { panic!("{args:?}") };
        assert_eq!(command, ["cargo", "test", "--", "-x"]);
        assert!(Args::try_parse_from(["disbatch-mongod", "run"]).is_err());
    }

    #[test]
    fn a_status_is_passed_on_as_a_shell_does() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), ExitCode::from(3));
        assert_eq!(exit_code(ExitStatus::from_raw(15)), ExitCode::from(143));
    }
}
