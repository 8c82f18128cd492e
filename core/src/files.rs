//! File sets: named sets of files in versions, for tasks to take and to make.
//!
//! A version is a document of `filesets`, its files are entries of `filesets.entries`, and what is in them is kept in
//! `filesets.files` and `filesets.chunks` as GridFS keeps files, under the SHA-256 of the content: equal files are stored
//! once. A version is open while it is made, done when it is whole, and gone when somebody has removed it. One that a task's
//! run has made is sealed in between, until its task has ended: see `files/commit.rs`.
//!
//! **A version that is done never changes.** Whoever adds entries takes a ticket, by an update that only an open version
//! lets through; the entries carry it, and it is given back when they are there. A version becomes done by one update on the
//! condition that no ticket was taken or given back since its entries were looked through; entries with a ticket that was
//! not given back are never shown, however late they come.
//!
//! **A version that is done has all contents that it names.** An upload belongs to who sends it, and becomes a content only
//! when all of its chunks are there and their SHA-256 is what it should be, so nobody can spoil what somebody else sends. A
//! content that nobody is known to name has the time since when that is so, `loose`. A commit removes that time from the
//! contents of its entries, which are there before, and only then makes its version done. [`crate::store::Store::sweep_files`] reads the
//! time, then looks for entries, and makes the content gone on the condition that the time is still the same. So either it
//! sees the entries, or its update finds another time or none, or the commit finds no content and is refused. That holds
//! however long any of them stands still in between; that the time has to be a day old only keeps what is being sent. Whoever is
//! told that a content need not be sent is told so after that time was renewed, by an update that a sweep loses against as well.
//!
//! **Nobody gets a content by knowing its hash.** The web server lets a user name a content in an entry only if that user
//! has sent all of it ([`crate::store::Store::unreferable`]), or may read a version that has it. So what others have stored
//! spares the sending only to those who may read it anyway. Each entry has the tenant of its version: whether there is such a
//! version is found out without a look at those of other tenants, in one step for each version and not for each file.
//!
//! What a task's run makes is fenced by the run: see [`crate::task::Run`] and `task/run.rs`.

mod commit;
mod contents;
mod entries;
mod sets;
mod upload;

use std::ops::Range;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use serde::Deserialize;

use crate::model::{FileSetId, TaskId};
use crate::store::StoreError;
use crate::store::collections;

pub use commit::{Committed, SettledFiles};
pub use contents::{Content, MOST_TOGETHER};
pub use disbatch_values::files::{
    CHUNK_BYTES, ContentHasher, ContentId, ContentIdError, EntryPath, LONGEST, PathError, PatternError,
    Patterns, RESERVED_PREFIX, SetName, SetNameError, chunk_length, chunks_of,
};
pub use sets::{NewSet, SetQuery, SetSummary, SweptFiles};
pub use upload::{Check, Chunk, ContentState, Put, Sender};

pub const SETS: &str = collections::FILE_SETS.name;
pub const ENTRIES: &str = collections::FILE_ENTRIES.name;
/// The collection of contents, and of uploads that are to become some.
pub const CONTENTS: &str = collections::FILE_CONTENTS.name;

pub const MOST_FILES: u64 = 1_000_000;

/// So many entries are added or listed at once at most.
pub const MOST_AT_ONCE: usize = 1_000;

/// So often something is tried that somebody else has overtaken.
const TRIES: usize = 64;

disbatch_values::words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum SetState {
        /// It is being made, and nobody is shown it.
        Open = "open",
        /// It is whole, and nobody is shown it: the run that has made it had not ended its task when somebody last looked.
        Sealed = "sealed",
        /// It is whole, and does not change any more.
        Done = "done",
        /// It was removed, or given up.
        Gone = "gone",
    }
}

impl SetState {
    /// Where versions stand that are not gone. All of a set are of one tenant.
    const ALIVE: [Self; 3] = [Self::Open, Self::Sealed, Self::Done];
}

impl From<SetState> for Bson {
    fn from(state: SetState) -> Self {
        state.as_str().into()
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FileSet {
    #[serde(rename = "_id")]
    pub id: FileSetId,
    pub name: String,
    /// Which version, from 1 on.
    pub version: i64,
    pub state: SetState,
    /// How many files it has, once it is whole.
    #[serde(default)]
    pub count: u64,
    /// How many bytes they have together, once it is whole.
    #[serde(default)]
    pub bytes: u64,
    /// When it was opened, by the server's clock.
    pub created: DateTime,
    /// When it became whole, by the server's clock.
    pub committed: Option<DateTime>,
    pub by: Option<String>,
    /// Whose it is. `None`: that of those who may do something everywhere.
    pub tenant: Option<String>,
    pub task: Option<TaskId>,
    pub expires: Option<DateTime>,
    /// How many tickets were taken.
    #[serde(default)]
    tickets: i64,
    /// Tickets that were not given back yet.
    #[serde(default)]
    pending: Vec<i64>,
    /// Tickets that never will be.
    #[serde(default)]
    lost: Vec<i64>,
}

/// A file to be added to a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    pub path: EntryPath,
    pub file: ContentId,
    /// How many bytes that has.
    pub size: u64,
    /// Who may read, write and run it: the lower nine bits of its mode.
    pub mode: u32,
    pub mtime: DateTime,
}

/// A file of a version, as it is stored. The path is whatever somebody has put into the database: it is to be read as an
/// [`EntryPath`] before it is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileEntry {
    pub path: String,
    pub file: ContentId,
    pub size: u64,
    pub mode: u32,
    pub mtime: DateTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryQuery<'a> {
    /// Those whose path begins with this text.
    pub prefix: &'a str,
    /// Those that come after this path, in the order of the bytes of paths.
    pub after: Option<&'a str>,
    /// So many at most, and no more than [`MOST_AT_ONCE`].
    pub limit: usize,
}

impl EntryQuery<'_> {
    /// The first ones of all.
    pub const ALL: Self = Self { prefix: "", after: None, limit: MOST_AT_ONCE };
}

/// Something could not be done with a file set. One line each.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("there is no such version of a file set")]
    NoSuchVersion,
    #[error("the version is {} and takes no more files", .0.as_str())]
    NotOpen(SetState),
    #[error("the file set {0} belongs to another tenant")]
    OfAnotherTenant(SetName),
    #[error("the version has another file at {0}")]
    PathTaken(EntryPath),
    #[error("at most {most} files are added at once", most = MOST_AT_ONCE)]
    TooManyAtOnce,
    #[error("a version has at most {most} files", most = MOST_FILES)]
    TooManyFiles,
    /// Somebody else has added the same paths at the same time, or the version was done meanwhile.
    #[error("somebody else was adding the same files; nothing of these was added")]
    Overtaken,
    #[error("too many change the file set at once")]
    Busy,
    #[error("a file has at most {most} bytes", most = LONGEST)]
    TooLong,
    #[error("a content of {length} bytes has no chunk {n}")]
    NoSuchChunk { n: u64, length: u64 },
    #[error("chunk {n} must have {expected} bytes and has {got}")]
    WrongSize { n: u64, expected: u64, got: u64 },
    /// Nothing of the content was sent, or that is too long ago.
    #[error("nothing of this content was sent")]
    NotSent,
    #[error("chunks are missing: {}", ranges(.0))]
    Incomplete(Vec<Range<u64>>),
    /// What was sent is not what its name says. It was thrown away.
    #[error("what was sent has another SHA-256; send all of it again")]
    WrongContent,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<mongodb::error::Error> for FilesError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Store(error.into())
    }
}

impl FilesError {
    /// The database's error in it, apart from others: time may mend only that.
    pub fn apart<T>(result: Result<T, Self>) -> Result<Result<T, Self>, StoreError> {
        match result {
            Err(Self::Store(error)) => Err(error),
            other => Ok(other),
        }
    }
}

/// The first of them, counted as people write them.
fn ranges(all: &[Range<u64>]) -> String {
    const SHOWN: usize = 10;
    let one = |range: &Range<u64>| match range.end.saturating_sub(1) {
        last if last <= range.start => range.start.to_string(),
        last => format!("{} to {last}", range.start),
    };
    let mut text = all.iter().take(SHOWN).map(one).collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text.push_str(", and more");
    }
    text
}

fn id_of(document: &Document) -> Option<ObjectId> {
    document.get_object_id("_id").ok()
}

/// The content that a document is of, which may be an upload of it.
fn content_of(document: &Document) -> Option<ContentId> {
    document.get_str("filename").ok()?.parse().ok()
}

/// A value that the server is not to take for an expression.
fn literal(value: impl Into<Bson>) -> Document {
    bson::doc! { "$literal": value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_chunks_are_listed_as_people_write_them() {
        assert_eq!(ranges(&[0..1, 3..7]), "0, 3 to 6");
        let many: Vec<Range<u64>> = (0..12).map(|n| 2 * n..2 * n + 1).collect();
        assert!(ranges(&many).ends_with("16, 18, and more"), "{}", ranges(&many));
    }
}
