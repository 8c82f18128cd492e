//! The command line. Options may stand before or after the command, as in the Perl client.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde::Deserialize;

const EXIT_CODES: &str =
    "Exit status: 0 done, 1 no or unknown command, 2 wrong option value, 255 anything else.";

/// Submits tasks to Disbatch, shows them, and manages queues, through the REST API of a DCI.
#[derive(Debug, Parser)]
#[command(name = "disbatch", version, after_help = EXIT_CODES, infer_long_args = true)]
pub struct Arguments {
    /// Where the DCI is.
    #[command(flatten)]
    pub connection: ConnectionOptions,
    /// What to list, and how.
    #[command(flatten)]
    pub listing: ListingOptions,
    /// Take the parameters of new tasks from the documents of this collection (create-tasks)
    #[arg(long, global = true, value_name = "NAME", help_heading = "Creating tasks")]
    pub collection: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the plugins that queues may be created with
    Plugins,
    /// Show all queues with their tasks counted
    #[command(visible_alias = "status")]
    Queues,
    /// Create a queue
    CreateQueue {
        /// The name of the new queue
        name: Option<String>,
        /// The plugin that runs its tasks
        plugin: Option<String>,
    },
    /// Change a queue: its name, plugin or threads
    UpdateQueue {
        /// The queue's name or id
        queue: Option<String>,
        /// Field and value, repeated: `threads 5 name mail`
        #[arg(allow_negative_numbers = true)]
        fields: Vec<String>,
    },
    /// Delete a queue; its tasks stay
    DeleteQueue {
        /// The queue's name or id
        queue: Option<String>,
    },
    /// Create one task
    CreateTask {
        /// The queue's name or id
        queue: Option<String>,
        /// Parameter and value, repeated: `user1 foo user2 bar`
        #[arg(allow_negative_numbers = true)]
        params: Vec<String>,
    },
    /// Create many tasks
    CreateTasks {
        /// The queue's name or id
        queue: Option<String>,
        /// A JSON array of parameter objects, or one object; with --collection an object of `filter` and
        /// `params`
        json: Option<String>,
    },
    /// Show tasks
    Tasks {
        /// A JSON object of indexed fields: `{"queue":"<id>","status":-2}`
        filter: Option<String>,
    },
    /// Run a DEN, a DCI and a database on this machine for development
    Dev(crate::dev::Args),
}

/// How to reach the DCI. A file given with `--config` has the same keys; the command line wins.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[command(next_help_heading = "Connection")]
#[serde(default)]
pub struct ConnectionOptions {
    /// Address of the DCI [default: http://localhost:8080]
    #[arg(long, global = true)]
    pub url: Option<String>,
    /// User name for HTTP basic authentication
    #[arg(long, global = true)]
    pub username: Option<String>,
    /// Password of that user
    #[arg(long, global = true)]
    pub password: Option<String>,
    /// Trust only the certificates in this PEM file
    #[arg(long = "ssl_ca_file", global = true, value_name = "FILE")]
    pub ssl_ca_file: Option<PathBuf>,
    /// Do not check the DCI's certificate
    #[arg(long = "disable_ssl_verification", global = true)]
    pub disable_ssl_verification: bool,
    /// JSON file with url, username and password
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
}

impl ConnectionOptions {
    /// These options, completed from the file of `--config`.
    ///
    /// # Errors
    /// The file cannot be read or is no JSON object of such keys.
    pub fn with_file(&self) -> anyhow::Result<Self> {
        let Some(path) = &self.config else { return Ok(self.clone()) };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: Self =
            serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        Ok(Self {
            url: self.url.clone().or(file.url),
            username: self.username.clone().or(file.username),
            password: self.password.clone().or(file.password),
            ssl_ca_file: self.ssl_ca_file.clone().or(file.ssl_ca_file),
            disable_ssl_verification: self.disable_ssl_verification || file.disable_ssl_verification,
            config: None,
        })
    }
}

/// Which tasks to show, and how (`tasks`).
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Listing tasks")]
pub struct ListingOptions {
    /// Print only how many there are
    #[arg(long, global = true)]
    pub count: bool,
    /// Only these fields, as a JSON array or object
    #[arg(long, global = true, value_name = "JSON")]
    pub fields: Option<String>,
    /// At most so many; 0 for all [default: 100]
    #[arg(long, global = true, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<i64>,
    /// Leave out so many first
    #[arg(long, global = true, value_name = "N")]
    pub skip: Option<u64>,
    /// Print times as seconds since 1970
    #[arg(long, global = true)]
    pub epoch: bool,
    /// Do not print the tasks' output
    #[arg(long, global = true, overrides_with = "noterse")]
    pub terse: bool,
    /// Print the tasks' output
    #[arg(long, global = true, overrides_with = "terse", alias = "no-terse")]
    pub noterse: bool,
    /// Print the tasks' output even where it is in `GridFS`
    #[arg(long, global = true)]
    pub full: bool,
    /// Print JSON for people
    #[arg(long, global = true)]
    pub pretty: bool,
}

/// Reads the command line.
///
/// Options that nobody knows are complained about and left out, as in the Perl client.
///
/// # Errors
/// The status to exit with, after help or a complaint has been printed.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, ExitCode> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    loop {
        let error = match Arguments::try_parse_from(&arguments) {
            Ok(arguments) => return Ok(arguments),
            Err(error) => error,
        };
        if let Some(position) = unknown_option(&error, &arguments) {
            let option = arguments.remove(position);
            eprintln!("Unknown option: {}", option.to_string_lossy().trim_start_matches('-'));
            continue;
        }
        if error.kind() == ErrorKind::InvalidSubcommand {
            let name = context(&error, ContextKind::InvalidSubcommand).unwrap_or_default();
            println!("Unknown command: {name}\n");
            print_usage();
            return Err(ExitCode::from(1));
        }
        // Nothing is left to be done if even this cannot be printed.
        let _ = error.print();
        return Err(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)));
    }
}

/// Prints what there is to use.
pub fn print_usage() {
    println!("{}", Arguments::command().render_help());
}

fn unknown_option(error: &clap::Error, arguments: &[OsString]) -> Option<usize> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let option = context(error, ContextKind::InvalidArg)?;
    let name = option.split('=').next().filter(|name| name.starts_with('-'))?;
    arguments.iter().position(|argument| {
        let argument = argument.to_string_lossy();
        argument == name || argument.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
    })
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None, // No other kind of value stands for a word of the command line.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &str) -> Arguments {
        parse(words.split(' ').map(OsString::from)).unwrap()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_stand_before_or_after_the_command() {
        for words in ["disbatch --skip 3 --limit 2 tasks {}", "disbatch tasks {} --limit 2 --skip 3"] {
            let arguments = parse_words(words);
            assert_eq!((arguments.listing.limit, arguments.listing.skip), (Some(2), Some(3)), "{words}");
            assert!(matches!(arguments.command, Some(Command::Tasks { filter: Some(_) })), "{words}");
        }
        let arguments = parse_words("disbatch create-tasks q --collection users {}");
        assert_eq!(arguments.collection.as_deref(), Some("users"));
    }

    #[test]
    fn unknown_options_are_left_out() {
        let arguments = parse_words("disbatch --url http://h --bogus queues --bad=5");
        assert!(matches!(arguments.command, Some(Command::Queues)));
        assert_eq!(arguments.connection.url.as_deref(), Some("http://h"));
    }

    #[test]
    fn unknown_commands_stop() {
        assert!(parse(["disbatch", "frobnicate"].map(OsString::from)).is_err());
    }
}
