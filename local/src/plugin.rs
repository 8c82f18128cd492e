//! `disbatch plugin ..`: for those who write plugins. No DCI and no database is needed.

pub mod check;
pub mod local_run;
mod new;
mod schema;

use std::path::Path;
use std::process::ExitCode;

use disbatch_cli::args::PluginCommand;

/// The exit status of `run` is that of `disbatch run`.
pub async fn run(command: PluginCommand, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    match command {
        PluginCommand::New(options) => {
            new::run(&options)?;
            Ok(ExitCode::SUCCESS)
        }
        PluginCommand::Check(which) => check::run(&which.folder),
        PluginCommand::Run(options) => Box::pin(local_run::run(&options, config)).await,
    }
}
