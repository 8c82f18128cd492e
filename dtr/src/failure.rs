//! How a runner ends.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use disbatch_core::config::ConfigError;
use disbatch_core::model::{IdError, NodeName, TaskId};
use disbatch_core::store::StoreError;

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
    Folder {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
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
