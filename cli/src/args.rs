//! The command line. Options may stand before or after the command, as in the Perl client.

mod accounts;
mod files;
mod find;
mod life;
mod options;
mod plugins;
mod schedules;
mod settings;
mod shape;
mod task;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
pub use disbatch_wire::bulk::BulkAction;
pub use disbatch_wire::seconds;

pub use accounts::*;
pub use files::*;
pub use find::*;
pub use life::*;
pub use options::*;
pub use plugins::*;
pub use schedules::*;
pub use settings::*;
pub use task::*;

const EXIT_CODES: &str = "Exit status: 0 done, 1 no or unknown command, 2 wrong option value, \
     130 interrupted, 255 anything else. That of run and wait tells how the task has ended: 0 succeeded, \
     102 failed, 103 terminated, 105 cancelled, 106 orphaned, 3 to 99 a status of the plugin's own, 100 one \
     above 99; 124 if --timeout of wait has passed.\n\n\
     `disbatch COMMAND --help` has examples.";

pub const USAGE: u8 = 2;

/// Submits tasks to Disbatch, shows them, and manages queues, through the REST API of a DCI.
#[derive(Debug, Parser)]
#[command(name = "disbatch", version, after_help = EXIT_CODES, infer_long_args = true)]
pub struct Arguments {
    #[command(flatten)]
    pub connection: ConnectionOptions,
    #[command(flatten)]
    pub listing: ListingOptions,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// Remove a node whose DEN is not alive; it comes back when that starts again
    #[command(visible_alias = "remove")]
    Rm {
        /// The node's name or id
        node: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the plugins that queues may be created with
    Plugins,
    /// Check whether all is well, and say what to do where it is not
    Doctor,
    /// Show all queues with their tasks counted
    #[command(visible_alias = "status")]
    Queues {
        /// Show them again every so many seconds [default: 2], until ^C
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
            allow_negative_numbers = true)]
        watch: Option<f64>,
    },
    /// Create a queue
    CreateQueue {
        /// The name of the new queue
        name: Option<String>,
        /// The plugin that runs its tasks
        plugin: Option<String>,
        /// Run so many of its tasks at once, over all nodes [default: none, until `update-queue` says]
        #[arg(long, value_name = "N")]
        threads: Option<u32>,
        /// Start the oldest task first (fifo), the newest (lifo), or any
        #[arg(long, value_name = "ORDER", value_parser = ["fifo", "lifo", "default"])]
        sort: Option<String>,
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
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Create many tasks
    CreateTasks {
        /// The queue's name or id
        queue: Option<String>,
        /// A JSON array of parameter objects, or one object; with --collection an object of `filter` and
        /// `params`
        json: Option<String>,
        #[command(flatten)]
        from: FileOptions,
        #[command(flatten)]
        options: TaskOptions,
    },
    /// Show tasks, of one queue or all
    Tasks {
        /// A JSON object of indexed fields: `{"queue":"<id>","status":-2}`
        #[arg(conflicts_with_all = ["queue", "status", "node", "tag", "any_tag", "since", "until", "text",
            "after"])]
        filter: Option<String>,
        #[command(flatten)]
        which: Box<TaskFilter>,
    },
    /// Search tasks by any field; needs a DCI with the extension Disbatch::Web::Tasks
    Search {
        /// A JSON object of fields: `{"params.user":"ashley"}`
        filter: Option<String>,
    },
    /// Show all nodes: how they are doing, what they run, where they are; or remove one that is gone
    Nodes {
        #[command(subcommand)]
        command: Option<NodesCommand>,
    },
    /// Change a node: how many tasks may run on it at once
    UpdateNode {
        /// The node's name or id
        node: Option<String>,
        /// `maxthreads` and a number, or `null` for no limit
        #[arg(allow_negative_numbers = true)]
        fields: Vec<String>,
    },
    /// Print a script that completes commands and options in a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages of this command line into a folder, one for each command
    ManPages {
        /// The folder, `/usr/local/share/man/man1` for instance
        folder: std::path::PathBuf,
    },
    /// Print a new key for secure parameters, for the file that is `secrets.key_file` of the configuration
    SecretsKey,
    /// Create the MongoDB users of all processes, directly in the database of --config
    CreateUsers(CreateUsers),
    /// Say who may use the DCI, directly in the database of --config
    #[command(subcommand)]
    User(UserCommand),
    /// Make and revoke tokens, which programs use the DCI with, directly in the database of --config
    #[command(subcommand)]
    Token(TokenCommand),
    /// Make tasks by the clock: show, make and change schedules
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Say which days schedules leave out, or keep to
    #[command(subcommand)]
    Calendar(CalendarCommand),
    /// Say who is told what happens
    #[command(subcommand)]
    Subscription(SubscriptionCommand),
    /// Say how many tasks and schedules each tenant may have
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Show tasks that were created as one array, cancel them or queue them once more
    #[command(subcommand, visible_alias = "arrays")]
    Array(ArrayCommand),
    /// Store sets of files for tasks, and get those that tasks have left
    #[command(subcommand)]
    Files(FilesCommand),
    /// Define plugins in the database: containers, web services and jobs of Kubernetes
    #[command(subcommand)]
    Workers(WorkersCommand),
    /// Write a plugin: begin one, look for mistakes in it, and run it here
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Run an attempt of a task again, here and without a database, and show what comes out differently
    Replay(ReplayOptions),
    /// A task's life.
    #[command(flatten)]
    Life(LifeCommand),
    /// Run a DEN, a DCI and a database on this machine for development
    Dev(DevOptions),
}

impl Command {
    /// Whether the Perl client has nothing like it: an option that nobody knows may be the one that limits what is done.
    fn is_ours(&self) -> bool {
        match self {
            Self::Life(_)
            | Self::User(_)
            | Self::Token(_)
            | Self::Schedule(_)
            | Self::Calendar(_)
            | Self::Subscription(_)
            | Self::Tenant(_)
            | Self::Array(_)
            | Self::Files(_)
            | Self::Workers(_)
            | Self::Plugin(_)
            | Self::Replay(_) => true,
            Self::Tasks { which, .. } => which.is_given(),
            Self::CreateQueue { threads, sort, .. } => threads.is_some() || sort.is_some(),
            _ => false, // As in Perl.
        }
    }
}

pub fn command() -> clap::Command {
    shape::arrange(Arguments::command())
}

pub fn command_for_completion() -> clap::Command {
    shape::without_hidden(&Arguments::command())
}

/// Reads the command line, whose first word is the program.
///
/// Options that nobody knows are complained about and left out, as in the Perl client, by the commands that
/// it has. They are not among the words any more then.
pub fn parse(words: &mut Vec<OsString>) -> Result<Arguments, ExitCode> {
    let mut left_out = false;
    loop {
        let matches = command().try_get_matches_from(&*words);
        let error = match matches.and_then(|matches| read(&matches)) {
            Ok(Arguments { command: Some(command), .. }) if left_out && command.is_ours() => {
                eprintln!("Nothing was done.");
                return Err(ExitCode::from(USAGE));
            }
            Ok(arguments) => return Ok(arguments),
            Err(error) => error,
        };
        if let Some(position) = unknown_option(&error, words) {
            let option = words.remove(position);
            left_out = true;
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
        return Err(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE)));
    }
}

/// What was given. A name or password on the command line comes before a token in the environment.
fn read(matches: &ArgMatches) -> Result<Arguments, clap::Error> {
    let mut arguments = Arguments::from_arg_matches(matches)?;
    let is_typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if (is_typed("username") || is_typed("password")) && !is_typed("token") {
        arguments.connection.token = None;
    }
    Ok(arguments)
}

pub fn print_usage() {
    println!("{}", command().render_help());
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

    /// The command that stands in the words behind the name of its group.
    pub fn subcommand<T: Subcommand>(words: &[&str]) -> Result<T, String> {
        let group = T::augment_subcommands(clap::Command::new("group").no_binary_name(true));
        let read = group.try_get_matches_from(words).and_then(|matches| T::from_arg_matches(&matches));
        read.map_err(|error| error.to_string())
    }

    fn split(words: &str) -> Vec<OsString> {
        words.split(' ').map(OsString::from).collect()
    }

    fn parse_words(words: &str) -> Arguments {
        parse(&mut split(words)).unwrap()
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn options_stand_before_or_after_the_command() {
        for words in ["disbatch --skip 3 --limit 2 tasks {}", "disbatch tasks {} --limit 2 --skip 3"] {
            let arguments = parse_words(words);
            assert_eq!((arguments.listing.limit, arguments.listing.skip), (Some(2), Some(3)), "{words}");
            assert!(matches!(arguments.command, Some(Command::Tasks { filter: Some(_), .. })), "{words}");
        }
        let arguments = parse_words("disbatch create-tasks q --collection users {}");
        assert_eq!(arguments.listing.collection.as_deref(), Some("users"));
    }

    #[test]
    fn unknown_options_are_left_out() {
        let mut words = split("disbatch --url http://h --bogus queues --bad=5");
        let arguments = parse(&mut words).unwrap();
        assert_eq!(words, split("disbatch --url http://h queues"), "another program need not complain again");
        assert!(matches!(arguments.command, Some(Command::Queues { watch: None })));
        assert_eq!(arguments.connection.url.as_deref(), Some("http://h"));
    }

    #[test]
    fn commands_that_perl_does_not_have_stand_no_unknown_options() {
        for words in [
            "disbatch bulk delete --queue q --oldr-than=7d",
            "disbatch --bogus pause q",
            "disbatch cancel x",
            "disbatch tasks --status failed --sinse 1h",
            "disbatch tasks {} --status failed",
            "disbatch set-task 6b0003bb686c8275d8013333",
            "disbatch locks db --prefix d",
        ] {
            assert!(parse(&mut split(words)).is_err(), "{words}");
        }
        let arguments = parse_words("disbatch bulk delete --status -5,failed --queue q --older-than 7d");
        let Some(Command::Life(LifeCommand::Bulk(bulk))) = arguments.command else { panic!() };
        assert_eq!(bulk.which.status, [-5, 2]);
    }

    #[test]
    fn tasks_are_named_by_a_filter_or_by_options() {
        let arguments = parse_words("disbatch tasks --status failed,-6 --since 1h --limit 5 --format table");
        let Some(Command::Tasks { filter: None, which }) = arguments.command else { panic!() };
        assert_eq!((which.status.as_slice(), which.since.is_some()), (&[2, -6][..], true));
        assert_eq!((arguments.listing.format, arguments.listing.limit), (Some(Format::Table), Some(5)));
        let arguments = parse_words("disbatch tasks {} --bogus");
        assert!(matches!(arguments.command, Some(Command::Tasks { filter: Some(_), .. })), "as in Perl");
    }

    #[test]
    fn who_asks_is_what_was_said_nearest() {
        let connection = |words: &str| {
            // A default value is no typed one either, and there for sure.
            let command =
                command().mut_arg("token", |token| token.env("DISBATCH_NO_TOKEN").default_value("kept"));
            let matches = command.try_get_matches_from(words.split(' ')).unwrap();
            read(&matches).unwrap().connection
        };
        assert_eq!(connection("disbatch queues").token.as_deref(), Some("kept"));
        assert_eq!(connection("disbatch --username u queues --password p").token, None);
        assert_eq!(connection("disbatch queues --password p").token, None);
        let both = connection("disbatch --token t queues --username u --password p");
        assert_eq!((both.token.as_deref(), both.username.as_deref()), (Some("t"), Some("u")));
    }

    #[test]
    fn commands_about_users_stand_no_unknown_options() {
        for words in ["disbatch user add a --admin --bogus", "disbatch --bogus token list", "disbatch user"] {
            assert!(parse(&mut split(words)).is_err(), "{words}");
        }
        let arguments = parse_words("disbatch user --config c.json list --format json");
        assert!(matches!(arguments.command, Some(Command::User(UserCommand::List))));
        assert_eq!(arguments.connection.config.as_deref(), Some(std::path::Path::new("c.json")));
        assert_eq!(arguments.listing.format(), Format::Json);
    }

    #[test]
    fn unknown_commands_stop() {
        assert!(parse(&mut split("disbatch frobnicate")).is_err());
    }
}
