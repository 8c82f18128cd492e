//! Why files cannot be brought or stored.

use std::io;

use disbatch_core::files::{EntryPath, FilesError, LONGEST, PathError, PatternError, SetName};
use disbatch_core::store::StoreError;

/// Why files cannot be brought or stored. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Files(#[from] FilesError),
    /// There is no version of the set that is done.
    #[error("there is no file set {0}")]
    NoSet(SetName),
    /// There is no such version that is done.
    #[error("there is no version {version} of the file set {name}")]
    NoVersion { name: SetName, version: i64 },
    #[error("the file set {0} does not belong to the tenant of the task")]
    OtherTenant(SetName),
    /// What somebody has put into the database is no path in a set.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The same of patterns.
    #[error("{0}")]
    Pattern(#[from] PatternError),
    #[error("{0} cannot be placed: the runner uses names like this itself")]
    Reserved(EntryPath),
    /// The content is not there, or has another size.
    #[error("the content of {0} is missing")]
    Missing(EntryPath),
    #[error("the content of {0} is damaged")]
    Damaged(EntryPath),
    #[error("cannot write {path}: {source}")]
    Write {
        /// Where it is in the set.
        path: EntryPath,
        source: io::Error,
    },
    #[error("cannot read {path}: {source}")]
    Read {
        /// Where it is in the set.
        path: EntryPath,
        source: io::Error,
    },
    #[error("cannot look through the private folder: {0}")]
    Walk(io::Error),
    #[error("{0} has more than {most} bytes", most = LONGEST)]
    TooLong(EntryPath),
    /// Somebody has written to the file after the plugin had ended.
    #[error("{0} was changed while it was stored")]
    Changed(EntryPath),
    /// Somebody else removes all the time what is stored.
    #[error("the files are removed as fast as they are stored")]
    Busy,
    #[error("the task is not this runner's any more")]
    NotOurs,
}
