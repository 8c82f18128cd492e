//! What can go wrong in a plugin.

use std::{fmt, io};

/// Why a plugin, or one of its calls to this crate, failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The task on standard input cannot be read.
    Task(String),
    /// A parameter is missing or has a wrong value.
    Param {
        /// The key in `params`.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A secure parameter is missing or has a wrong value, which is not shown.
    SecureParam {
        /// The key in `secure_params`.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A status that is not a positive integer.
    Status(i32),
    /// A result that cannot be stored.
    Result(String),
    /// A report that cannot be stored.
    Report(String),
    /// A value that cannot be saved.
    Storage(String),
    /// A question that cannot be asked.
    Question(String),
    /// The task cannot be ended in a transaction.
    Commit,
    /// Input or output failed.
    Io(io::Error),
    /// The plugin's own reason.
    Failed(String),
}

impl Error {
    /// A failure that the plugin puts in its own words.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(problem) => write!(f, "cannot read the task: {problem}"),
            Self::Param { name, problem } => write!(f, "params.{name} {problem}"),
            Self::SecureParam { name, problem } => write!(f, "secure_params.{name} {problem}"),
            Self::Status(status) => write!(f, "status must be a positive integer, got {status}"),
            Self::Result(problem) => write!(f, "result {problem}"),
            Self::Report(problem) => write!(f, "report {problem}"),
            Self::Storage(problem) => write!(f, "storage {problem}"),
            Self::Question(problem) => write!(f, "question {problem}"),
            Self::Commit => f.write_str(
                "the task cannot be committed: its manifest has no \"commits\": true, or another step comes after this one",
            ),
            Self::Io(error) => error.fmt(f),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text of an I/O error is the whole text of ours, so its source is what stands behind it.
        match self {
            Self::Io(error) => error.source(),
            Self::Task(_)
            | Self::Param { .. }
            | Self::SecureParam { .. }
            | Self::Status(_)
            | Self::Result(_)
            | Self::Report(_)
            | Self::Storage(_)
            | Self::Question(_)
            | Self::Commit
            | Self::Failed(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
