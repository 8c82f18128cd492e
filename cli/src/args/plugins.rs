//! The commands about plugins: those that the database defines, those that somebody writes, and runs of them that are done again.

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

#[derive(Debug, Args)]
pub struct ReplayOptions {
    /// Bundles that `disbatch bundle` has written, or folders of them; `-` for standard input
    #[arg(value_name = "BUNDLE", required_unless_present = "last")]
    pub bundles: Vec<PathBuf>,
    /// Another version of the plugin: its folder, or a program that takes the place of its program; or a folder of plugins, of
    /// which the version is taken that ran
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
    #[arg(long, conflicts_with_all = ["last", "html"])]
    pub keep: bool,
    /// Start a shell in place of the plugin, in such a folder and with its environment
    #[arg(long, conflicts_with_all = ["mask", "timeout", "json", "last", "html"])]
    pub shell: bool,
    /// Print what came of it as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub many: ManyRuns,
}

/// Options of `replay` for many runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Many runs")]
pub struct ManyRuns {
    /// Replay the last so many runs of --queue that were recorded, up to 1000, with bundles from the DCI
    #[arg(long, value_name = "N", requires = "queue", conflicts_with = "bundles",
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub last: Option<u32>,
    /// The queue of --last, by name or id
    #[arg(long, value_name = "QUEUE", requires = "last")]
    pub queue: Option<String>,
    /// Keep the bundles of --last in this folder
    #[arg(long, value_name = "FOLDER", requires = "last")]
    pub save: Option<PathBuf>,
    /// Replay so many at once [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub jobs: Option<u16>,
    /// Write what came of them as a page into this file, too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What makes the exit status 1, with commas between [default: different]
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_enum)]
    pub fail_on: Vec<FailOn>,
    #[command(flatten)]
    pub limits: Limits,
}

/// When a run counts as slower or faster than it was.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Limits {
    /// A run is slower if it took more than so many percent longer, and faster if it took more than --faster-than less
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    pub slower_than: f64,
    /// See --slower-than
    #[arg(long, value_name = "PERCENT", default_value = "33", value_parser = percent)]
    pub faster_than: f64,
    /// What differs by no more than this is neither slower nor faster
    #[arg(long, value_name = "TIME", default_value = "0.2", value_parser = seconds::parse)]
    pub noise: Duration,
}

/// What is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A run came out differently
    Different,
    /// A run took longer
    Slower,
    /// A run could not be replayed
    NotReplayable,
}

impl ReplayOptions {
    /// Whether many runs are to be told of together, and not one by itself.
    pub fn is_many(&self) -> bool {
        let ManyRuns { last, html, fail_on, .. } = &self.many;
        let is_one_file = matches!(&self.bundles[..], [only] if !only.is_dir());
        last.is_some() || html.is_some() || !fail_on.is_empty() || !is_one_file
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    number
        .filter(|percent| (0.0..=100_000.0).contains(percent))
        .ok_or_else(|| format!("'{text}' is no percentage: write 50 or 50%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;
    use crate::args::tests::subcommand;

    #[test]
    fn many_runs_are_named_or_fetched() {
        let parse = |words: &str| subcommand::<Command>(&words.split(' ').collect::<Vec<_>>());
        let options = |words: &str| match parse(words) {
            Ok(Command::Replay(options)) => options,
            other => panic!("{other:?}"),
        };
        for wrong in [
            "replay",
            "replay --last 9",
            "replay a.tar --last 9 --queue q",
            "replay --last 9 --queue q --shell",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(!options("replay run.tar").is_many() && options("replay a.tar b.tar").is_many());
        assert!(options("replay run.tar --html page.html").is_many() && options("replay .").is_many());
        let last = options(
            "replay --last 200 --queue mail --slower-than 10% --noise 0 --fail-on slower,not-replayable",
        );
        assert!(last.is_many() && last.bundles.is_empty());
        assert_eq!((last.many.last, last.many.limits.slower_than), (Some(200), 10.0));
        assert_eq!(last.many.fail_on, [FailOn::Slower, FailOn::NotReplayable]);
        assert_eq!(percent("x%").unwrap_err(), "'x%' is no percentage: write 50 or 50%");
    }
}
