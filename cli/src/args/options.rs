//! The options of single commands, and of what is done without a DCI, by `disbatch-local`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How many lines go in one request unless `--batch` says otherwise.
const DEFAULT_BATCH: u32 = 1_000;

/// Which tasks to show, and how.
///
/// These are hidden here and shown again for the commands that take them: see [`crate::args::shape`].
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Listing")]
pub struct ListingOptions {
    /// Print only how many there are
    #[arg(long, global = true, hide = true)]
    pub count: bool,
    /// Only these fields, as a JSON array or object
    #[arg(long, global = true, hide = true, value_name = "JSON")]
    pub fields: Option<String>,
    /// At most so many; 0 for all [default: 100]
    #[arg(long, global = true, hide = true, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<i64>,
    /// Leave out so many first
    #[arg(long, global = true, hide = true, value_name = "N")]
    pub skip: Option<u64>,
    /// Limit, order and fields as a JSON object: `{"limit":5,"sort":{"_id":-1}}`
    #[arg(long, global = true, hide = true, value_name = "JSON")]
    pub options: Option<String>,
    /// Print times as seconds since 1970
    #[arg(long, global = true, hide = true)]
    pub epoch: bool,
    /// Do not print the tasks' output
    #[arg(long, global = true, hide = true, overrides_with = "noterse")]
    pub terse: bool,
    /// Print the tasks' output
    #[arg(long, global = true, hide = true, overrides_with = "terse", alias = "no-terse")]
    pub noterse: bool,
    /// Print the tasks' output even where it is in `GridFS`
    #[arg(long, global = true, hide = true)]
    pub full: bool,
    /// Print JSON for people
    #[arg(long, global = true, hide = true)]
    pub pretty: bool,
    /// How to print the list [default: table; after a JSON object: json]
    #[arg(long, global = true, hide = true, value_enum)]
    pub format: Option<Format>,
    /// Take the parameters from the documents of this collection
    #[arg(long, global = true, hide = true, value_name = "NAME", help_heading = None::<&str>)]
    pub collection: Option<String>,
}

impl ListingOptions {
    /// How to print the list, where nothing else was said.
    pub fn format(&self) -> Format {
        self.format.unwrap_or_default()
    }
}

/// How to print a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    #[default]
    Table,
    /// JSON as the DCI sends it, on one line unless `--pretty` is given
    Json,
    /// YAML
    Yaml,
}

/// Tasks from a file (`create-tasks --file`).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Many tasks from a file")]
pub struct FileOptions {
    /// File with a JSON object of parameters on each line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "collection"])]
    pub file: Option<PathBuf>,
    /// Lines for each request
    #[arg(long, value_name = "N", requires = "file", default_value_t = DEFAULT_BATCH,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// Leave out so many lines first, to go on where an earlier run stopped
    #[arg(long, value_name = "N", requires = "file", default_value_t = 0)]
    pub skip_lines: u64,
    /// Print the ids of the new tasks
    #[arg(long, requires = "file")]
    pub ids: bool,
}

/// A shell that completion scripts can be written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// What `create-users` takes, beside `--config` with the configuration of Disbatch.
#[derive(Debug, Args)]
pub struct CreateUsers {
    /// The MongoDB user who may create others
    #[arg(long = "root_user", value_name = "NAME", default_value = "root")]
    pub root_user: String,
    /// What plugins may do, as JSON: {"COLLECTION": ["ACTION", ..]} [default: insert into reports]
    #[arg(long = "plugin_perms", value_name = "FILE")]
    pub plugin_perms: Option<PathBuf>,
    /// What users may do besides, as JSON: {"USER": {"COLLECTION": ["ACTION", ..]}}
    #[arg(long = "additional_perms", value_name = "FILE")]
    pub additional_perms: Option<PathBuf>,
    /// Create the root user first; only a server without any users lets you
    #[arg(long = "create_root")]
    pub create_root: bool,
    /// Remove the users and roles before they are created
    #[arg(long = "drop_roles")]
    pub drop_roles: bool,
}

/// Options of `disbatch dev`.
#[derive(Debug, Args)]
pub struct DevOptions {
    /// Folder of the data, the logs and the configuration [default: ~/.local/share/disbatch/dev]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Port of the DCI on 127.0.0.1
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Port of MongoDB on 127.0.0.1 [default: the one before, else any that is free]
    #[arg(long, value_name = "N")]
    pub mongo_port: Option<u16>,
    /// Folder of plugins, or of one, that can be used beside the shipped ones; may be repeated
    #[arg(long, value_name = "DIR")]
    pub plugins: Vec<PathBuf>,
    /// Create two queues, run 20 tasks in them and show what comes out
    #[arg(long)]
    pub demo: bool,
    /// Stop after the demo; the exit status is 0 only if all went as expected
    #[arg(long, requires = "demo")]
    pub exit: bool,
}
