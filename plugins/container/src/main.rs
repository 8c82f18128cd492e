//! `disbatch-container`: runs the tasks of plugins with the engine `container`, by the interface of Docker, which Podman
//! has as well.
//!
//! A runner starts it as it starts any plugin, and what holds for plugins holds for it: it reads the task from its
//! standard input, its output is the task's, and SIGTERM means that the task is to end. What it is told besides is in
//! [`input`]. With the argument `tidy` it removes the containers of those that were killed.
//!
//! The interface is spoken here and not by a client of its types: those refuse whole answers for a word that they do not
//! know, and Podman has some.

mod api;
mod channel;
mod image;
mod input;
mod labels;
mod output;
mod request;
mod run;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use disbatch_adapter::{block_on, with_task};

fn main() -> ExitCode {
    match Args::parse().command {
        None => block_on(with_task(run::run)),
        Some(Command::Tidy(options)) => block_on(Box::pin(tidy::command(options))),
    }
}

/// Runs a task in a container. Runners of Disbatch start it, with the task on its standard input.
#[derive(Debug, Parser)]
#[command(name = "disbatch-container", version)]
struct Args {
    /// What to do in place of running a task.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Removes containers of tasks whose adapter was killed.
    Tidy(TidyOptions),
}

/// Which containers, and where they are.
#[derive(Debug, Clone, Default, clap::Args)]
struct TidyOptions {
    /// The node: of its containers also those go that it had started before the machine was last started.
    #[arg(long)]
    pub node: Option<String>,
    /// The database that the node works for.
    #[arg(long)]
    pub database: Option<String>,
    /// The socket of a container engine, more than once for several; looked for if there is none.
    #[arg(long = "socket", value_name = "PATH OR ADDRESS")]
    pub sockets: Vec<String>,
    /// The number of the user whose own container engine is looked for.
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
}
