//! The options of `replay`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::seconds;

/// Options of `replay`.
#[derive(Debug, Args)]
pub struct ReplayOptions {
    /// A bundle that `disbatch bundle` has written; `-` for standard input
    pub bundle: PathBuf,
    /// Another version of the plugin: its folder, or a program that takes the place of its program
    #[arg(long, value_name = "PATH")]
    pub with: Option<PathBuf>,
    /// Take for the same what this pattern matches in output and results; may be repeated
    #[arg(long, value_name = "REGEX")]
    pub mask: Vec<String>,
    /// A file with what is secret, as one JSON object: {"secure_params": {..}, "VARIABLE": ".."} [default: ask]
    #[arg(long, value_name = "FILE")]
    pub secrets: Option<PathBuf>,
    /// End it after so long: 90, 10m, 2h [default: as the task or its queue has it]
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    pub timeout: Option<Duration>,
    /// Leave its private folder, and say where it is
    #[arg(long)]
    pub keep: bool,
    /// Start a shell in place of the plugin, in such a folder and with its environment
    #[arg(long, conflicts_with_all = ["mask", "timeout", "json"])]
    pub shell: bool,
    /// Print what came of it as JSON
    #[arg(long)]
    pub json: bool,
}
