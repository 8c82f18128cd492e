//! What a runner is started with, however many tasks it runs: the command line, which is that of Disbatch's `task_runner`, and
//! `--node`; what it needs once; and how it ends.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use disbatch_core::config::{Config, ConfigError, DEFAULT_PATH, Gfs, Level};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{IdError, NodeName, TaskId};
use disbatch_core::store::StoreError;
use disbatch_core::telemetry;

use crate::custody::Nudges;
use crate::folder;

const EXIT_CODES: &str = "\
Exit status:
  0  the result is stored, whatever the plugin's status; with --link: no task is left undone
  1  the task is not this node's: not claimed for it, and nothing was touched; or taken away while it
     ran, and its result is discarded
  2  wrong command line
  3  the configuration cannot be used
  4  the database cannot be reached or refuses an operation
  5  no private folder can be made for the task
  6  the result is stored, but not all of its output";

/// Runs one claimed task of a Disbatch queue and stores its result; or, for a DEN, one after the other.
#[derive(Debug, Parser)]
#[command(name = "dtr", version, after_help = EXIT_CODES)]
pub struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,

    /// Id of the task: 24 hexadecimal digits
    #[arg(long, value_name = "ID", required_unless_present = "link")]
    pub task: Option<String>,

    /// Run the tasks that a DEN assigns over the socket which this process has inherited as descriptor FD
    #[arg(long, value_name = "FD", conflicts_with_all = ["task", "attempt"], requires = "no_echo",
          value_parser = clap::value_parser!(i32).range(0..))]
    pub link: Option<i32>,

    /// The node that claimed the task [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Which claim of the task this runner is for; a DEN says it, so that a late runner finds out
    #[arg(long, value_name = "N", requires = "instance")]
    pub attempt: Option<i64>,

    /// The start of the DEN that claimed it, with --attempt
    #[arg(long, value_name = "ID", requires = "attempt")]
    pub instance: Option<String>,

    /// Store output in GridFS: "auto" if it is large, 1 (or no value) always, 0 never
    /// [default: the configuration's `gfs`, else 0]
    #[arg(long, value_name = "MODE", num_args = 0..=1, default_missing_value = "1")]
    pub gfs: Option<Gfs>,

    /// Do not write the result to standard error, nor any log below warnings
    #[arg(long)]
    pub quiet: bool,

    /// Do not write the result to standard error
    #[arg(long)]
    pub no_echo: bool,

    /// Accepted for Disbatch's sake; changes nothing
    #[arg(long, hide = true)]
    pub testing: bool,

    /// Print the manual page, for packages
    #[arg(long, exclusive = true, hide = true)]
    pub man_page: bool,
}

/// What a runner has before its first task.
#[derive(Debug)]
pub struct Setup {
    pub config: Arc<Config>,
    pub node: NodeName,
    /// Where output goes.
    pub gfs: Gfs,
    pub lifecycle: Lifecycle,
    pub nudges: Nudges,
}

impl Setup {
    /// Reads the configuration, and starts to log and to listen for signals.
    pub fn new(args: &Args) -> Result<Self, Failure> {
        let mut config = Config::load(&args.config)?;
        let node = match &args.node {
            Some(name) => NodeName::new(name),
            None => NodeName::of_this_host().map_err(Failure::Setup)?,
        };
        if config.temp_dir.is_some() {
            folder::make_in(config.temp_folder());
            folder::provide(folder::parent())?;
        }
        if args.quiet {
            config.log.level = Level::Warn;
        }
        telemetry::init(&config.log).map_err(Failure::Setup)?;
        if args.link.is_none() {
            // A DEN has said it for all of its runners.
            config.log_exposure();
        }
        let lifecycle = Lifecycle::listen().map_err(Failure::Setup)?;
        let nudges = Nudges::listen().map_err(Failure::Setup)?;
        // A runner must survive what happens to the session of the DEN that started it. From a shell it leads a
        // process group already and stays where it is.
        if let Err(error) = nix::unistd::setsid() {
            tracing::debug!(%error, "staying in the session");
        }
        // A connection may be made later, with another working directory.
        if let Some(file) = config.attributes.ssl.as_mut().and_then(|ssl| ssl.ca_file.as_mut()) {
            *file = std::path::absolute(Path::new(file)).map_err(Failure::Setup)?;
        }
        let gfs = args.gfs.or(config.gfs).unwrap_or(Gfs::Never);
        Ok(Self { config: Arc::new(config), node, gfs, lifecycle, nudges })
    }
}

/// How a run ended that did what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Stored,
    /// The result is stored without all of its output.
    Incomplete,
}

/// Why a run could not do what it should. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("--task: {0}")]
    TaskId(#[from] IdError),
    #[error("--link: {0}")]
    Link(io::Error),
    #[error("the DEN assigns a task that cannot be read: {0}")]
    Assignment(#[from] bson::error::Error),
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// `mongohost` or the CA file cannot be used.
    #[error("invalid configuration: {0}")]
    Address(StoreError),
    /// The log file or the signal handlers cannot be set up.
    #[error("{0}")]
    Setup(io::Error),
    #[error("cannot make a private folder for the task in {folder}: {source}", folder = folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error("no task {task} is claimed for node {node}; nothing was touched")]
    NotClaimed { task: TaskId, node: NodeName },
    #[error("task {task} is not running on node {node} any more; its result is discarded")]
    TakenAway { task: TaskId, node: NodeName },
    /// The database is away or refuses an operation.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl Ending {
    /// See `dtr --help`.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Stored => ExitCode::SUCCESS,
            Self::Incomplete => ExitCode::from(6),
        }
    }
}

impl Failure {
    /// See `dtr --help`.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotClaimed { .. } | Self::TakenAway { .. } => 1,
            Self::TaskId(_) | Self::Link(_) => 2,
            Self::Address(error) if error.is_transient() => 4,
            Self::Config(_) | Self::Address(_) | Self::Setup(_) => 3,
            Self::Store(_) | Self::Assignment(_) => 4,
            Self::Folder { .. } => 5,
        })
    }
}
