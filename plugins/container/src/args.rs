//! The command line.

use clap::{Parser, Subcommand};

/// Runs a task in a container. Runners of Disbatch start it, with the task on its standard input.
#[derive(Debug, Parser)]
#[command(name = "disbatch-container", version)]
pub struct Args {
    /// What to do in place of running a task.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Removes containers of tasks whose adapter was killed.
    Tidy(TidyOptions),
}

/// Which containers, and where they are.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TidyOptions {
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
