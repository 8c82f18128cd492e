//! The commands about plugins: those that the database defines, and those that somebody writes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use disbatch_values::engine::Engine;

use super::shape::{Shape, shape};
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

const LIST: &[&str] = &["format", "pretty"];

/// A command that speaks to nobody.
const fn alone(name: &'static str, examples: &'static str) -> Shape {
    Shape { name, options: &[], connects: false, examples }
}

/// What the help of each command shows. Those of a group come with its name.
pub static SHAPES: [Shape; 12] = [
    shape("workers", &[], "disbatch workers list\n  disbatch workers set My::Report report.json"),
    shape("workers list", LIST, "disbatch workers list\n  disbatch workers list --format json"),
    shape(
        "workers show",
        LIST,
        "disbatch workers show My::Report\n  disbatch workers show My::Report --format json",
    ),
    shape(
        "workers set",
        &[],
        "disbatch workers set My::Report report.json\n  disbatch workers set My::Report - --rev 3 < report.json",
    ),
    shape("workers check", &[], "disbatch workers check report.json"),
    shape("workers rm", &[], "disbatch workers rm My::Report"),
    shape(
        "workers import",
        &[],
        "disbatch workers import workers.json\n  \
         curl -s http://couch.example:5984/jobs-worker/_all_docs?include_docs=true | disbatch workers import -",
    ),
    alone(
        "plugin",
        "disbatch plugin new My::Greet\n  disbatch plugin run my-greet --params '{\"name\":\"Ada\"}'",
    ),
    alone(
        "plugin new",
        "disbatch plugin new My::Greet\n  disbatch plugin new My::Greet --language sh --folder greet\n  \
         disbatch plugin new My::Greet --engine perl",
    ),
    alone("plugin check", "disbatch plugin check my-greet"),
    Shape {
        name: "replay",
        options: &["config"],
        connects: true,
        examples: "disbatch bundle 6b0003bb686c8275d8013333 > run.tar && disbatch replay run.tar\n  \
                   disbatch replay run.tar --with ./my-plugin --mask 'request [0-9a-f]+'\n  \
                   disbatch replay run.tar --secrets secrets.json --json\n  \
                   disbatch replay run.tar --shell\n  \
                   disbatch replay --last 200 --queue mail --with ./my-plugin --html page.html\n  \
                   disbatch replay --last 50 --queue mail --save bundles && disbatch replay bundles --json\n\n\
                   --config is the configuration of a node, for its plugins; where the DCI is of --last is said by the other \
                   options, the environment, or ~/.config/disbatch/cli.json.\n\n\
                   Exit status: 0 it came out the same, 1 differently (or as --fail-on has it), 2 wrong option, \
                   130 interrupted, 255 it could not be replayed, or none of many.",
    },
    Shape {
        name: "plugin run",
        options: &["config"],
        connects: false,
        examples: "disbatch plugin run my-greet\n  \
                   disbatch plugin run my-greet --params '{\"name\":\"Ada\"}' --timeout 10s\n  \
                   disbatch plugin run my-greet --config config.json",
    },
];
