//! The commands about plugins: those that the database defines, and those that somebody writes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use disbatch_values::engine::Engine;

use crate::args::seconds;

/// What is done with definitions of plugins.
#[derive(Debug, Subcommand)]
pub enum WorkersCommand {
    /// Show the plugins that the database defines
    List,
    /// Show the definition of one
    Show {
        /// The plugin's name
        worker: String,
    },
    /// Make one, or give it another definition
    Set {
        /// The plugin's name
        worker: String,
        /// A file with a manifest as JSON; `-` for standard input
        file: PathBuf,
        /// Only if there is one that still has this revision
        #[arg(long, value_name = "N")]
        rev: Option<i64>,
    },
    /// Say whether a definition could be stored, and store nothing
    Check {
        /// A file with a manifest as JSON, and its name as `_id` or `name`, or with several as `workers import` takes them; `-` for standard input
        file: PathBuf,
    },
    /// Remove one; queues of it stay, and their tasks wait
    Rm {
        /// The plugin's name
        worker: String,
    },
    /// Store definitions that come from elsewhere, all of them or none
    Import {
        /// A file with a list of documents as JSON, or with one on each line; `-` for standard input
        file: PathBuf,
        /// Also in the place of workers that have these names
        #[arg(long)]
        replace: bool,
    },
}

/// What is done with a plugin that somebody writes.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Make a folder with a plugin that works, to begin with
    New(NewPlugin),
    /// Look for mistakes in a plugin's folder
    Check(PluginFolder),
    /// Run a plugin here, without a database, as a runner does
    Run(RunOnce),
}

/// A new plugin.
#[derive(Debug, Args)]
pub struct NewPlugin {
    /// What queues will call it: letters, digits, `_` and `:`, as in My::Greet
    pub name: String,
    /// How it is run: exec, perl, program, container, http or kubernetes
    #[arg(long, default_value = "exec")]
    pub engine: Engine,
    /// The language of its program, for the engines exec and program [default: python]
    #[arg(long, value_enum)]
    pub language: Option<Language>,
    /// Where to make it [default: a folder of the plugin's name, here]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

/// Languages that there is something to begin with in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// POSIX shell
    Sh,
    /// Python 3
    Python,
    /// Perl
    Perl,
    /// Rust
    Rust,
}

/// A plugin's folder.
#[derive(Debug, Args)]
pub struct PluginFolder {
    /// The folder with `plugin.json`
    pub folder: PathBuf,
}

/// A run of a plugin.
#[derive(Debug, Args)]
pub struct RunOnce {
    /// The folder with `plugin.json`
    pub folder: PathBuf,
    /// The parameters of the task, as a JSON object
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// The secure parameters of the task: a file with a JSON object; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub secure_params_file: Option<PathBuf>,
    /// End it after so long: 90, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    pub timeout: Option<Duration>,
}
