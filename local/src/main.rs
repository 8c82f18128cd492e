//! `disbatch-local`: what `disbatch` does without a DCI, with the database, a runner or a MongoDB server of its own. `disbatch`
//! becomes this program for that, and nobody else calls it.

#![expect(clippy::print_stderr, reason = "printing is what a command line is for")]

mod create_users;
mod dev;
mod direct;
mod password;
mod plugin;
mod replay;
mod secrets_key;
mod token;
mod user;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::bail;
use disbatch_cli::args::{self, Arguments, Command};
use disbatch_cli::output;

fn main() -> ExitCode {
    // A plugin that is run here has a guard, which is this program again.
    disbatch_dtr::as_part_of_runner().unwrap_or_else(work)
}

#[tokio::main]
async fn work() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    match args::parse(&mut words) {
        Ok(arguments) => output::exit_code(run(arguments).await),
        Err(stopped) => stopped,
    }
}

async fn run(Arguments { connection, listing, command }: Arguments) -> anyhow::Result<ExitCode> {
    let config = connection.config.clone();
    // Boxed, so that the state of one does not weigh on every other.
    match command {
        Some(Command::Dev(options)) => return Box::pin(dev::run(options, connection)).await,
        Some(Command::CreateUsers(options)) => {
            return Box::pin(create_users::run(options, config.as_deref())).await;
        }
        Some(Command::Plugin(command)) => return Box::pin(plugin::run(command, config.as_deref())).await,
        Some(Command::Replay(options)) => return Box::pin(replay::run(&options, connection)).await,
        Some(Command::User(command)) => Box::pin(user::run(command, config.as_deref(), &listing)).await?,
        Some(Command::Token(command)) => Box::pin(token::run(command, config.as_deref(), &listing)).await?,
        Some(Command::SecretsKey) => secrets_key::run()?,
        _ => bail!("this program is a part of disbatch, which is what to call"), // It does all else by itself.
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_disbatch_does_by_itself_is_not_done_here() {
        for words in ["disbatch-local queues", "disbatch-local completion bash", "disbatch-local"] {
            let arguments = args::parse(&mut words.split(' ').map(OsString::from).collect()).unwrap();
            let error = run(arguments).await.unwrap_err().to_string();
            assert_eq!(error, "this program is a part of disbatch, which is what to call", "{words}");
        }
    }
}
