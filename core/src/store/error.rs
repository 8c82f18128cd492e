//! What can go wrong with the database, in one line each. A message has its cause in it, so no error has a `source`: who prints
//! a chain would print the cause twice.

use bson::Document;
use mongodb::error::{ErrorKind, WriteError, WriteFailure as DriverWriteFailure};

/// What the server says first when it could not change a document that it was to answer. What follows is the same as
/// for one that it was only to change.
const FIND_AND_MODIFY: &str = "Plan executor error during findAndModify :: caused by :: ";

/// The code with which a server refuses a document that would be larger than 16 MiB.
const TOO_LARGE: i32 = 17_419;

/// An operation on the database failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No server answers, or none that takes this operation.
    #[error("cannot reach MongoDB: {reason}")]
    Unreachable {
        /// What the driver found.
        reason: String,
    },
    /// The server does not let us in.
    #[error("MongoDB refused the credentials: {reason}")]
    Refused {
        /// What the server said.
        reason: String,
    },
    /// The server has not confirmed writes: it is no primary any more, or has not heard from a majority. They may
    /// have been made.
    #[error("MongoDB has not confirmed a write: {reason}")]
    Unconfirmed {
        /// What the server said.
        reason: String,
    },
    /// The server rejected the operation.
    #[error("{}", describe(.0))]
    Database(mongodb::error::Error),
    #[error("cannot read document {id} of {collection}: {why}")]
    Document {
        collection: &'static str,
        id: String,
        /// What is wrong with it.
        why: Box<bson::error::Error>,
    },
    #[error("output file {id} is damaged: {reason}")]
    DamagedOutput {
        id: bson::oid::ObjectId,
        /// What is missing.
        reason: String,
    },
    /// A content of file sets is incomplete, or not what it should be.
    #[error("the content {id} is damaged: {reason}")]
    DamagedContent {
        /// Its SHA-256.
        id: String,
        reason: String,
    },
    #[error("cannot read captured output: {0}")]
    Spool(std::io::Error),
}

/// How the server rejected a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteFailure {
    /// MongoDB's error code: 11000 for a duplicate key.
    pub code: i32,
    /// The server's words.
    pub message: String,
}

impl WriteFailure {
    /// Whether a unique index forbids the write.
    pub fn is_duplicate_key(&self) -> bool {
        self.code == 11_000
    }

    /// Whether there is such an index already, with other options.
    pub fn is_other_index(&self) -> bool {
        matches!(self.code, 85 | 86)
    }

    /// Whether the server can have no such index: a unique one of a collection that is sharded by other fields.
    pub fn is_impossible_index(&self) -> bool {
        self.code == 67
    }

    /// Whether the collection does not exist yet.
    pub fn is_no_collection(&self) -> bool {
        self.code == 26
    }

    /// Whether the server refuses every write for now: it is no primary, is shutting down, or is busy.
    pub fn is_refusal(&self) -> bool {
        matches!(self.code, 91 | 112 | 189 | 10_058 | 10_107 | 11_600 | 11_602 | 13_435 | 13_436)
    }

    /// Whether a document would exceed the server's 16 MiB.
    pub fn is_too_large(&self) -> bool {
        matches!(self.code, 10_334 | 17_419 | 17_420 | 17_280)
    }
}

impl StoreError {
    /// What the server says of a write of one document that it refuses. `None`: it says something else.
    pub(crate) fn of_write(failure: &Document) -> Option<Self> {
        let failure: WriteError = bson::deserialize_from_document(failure.clone()).ok()?;
        Some(Self::Database(ErrorKind::Write(DriverWriteFailure::WriteError(failure)).into()))
    }

    /// What nothing can be done with, in words: the same as where the server refuses a document for its size.
    pub fn unfit(what: &str) -> Self {
        let failure = bson::doc! { "code": TOO_LARGE, "errmsg": what };
        Self::of_write(&failure).unwrap_or_else(|| Self::Unconfirmed { reason: what.to_owned() })
    }

    /// Whether trying again later may help: the server was away or busy electing a primary.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Unconfirmed { .. } => true,
            Self::Database(error) => {
                error.contains_label(mongodb::error::RETRYABLE_WRITE_ERROR)
                    || error.contains_label(mongodb::error::RETRYABLE_ERROR)
            }
            Self::Refused { .. }
            | Self::Document { .. }
            | Self::DamagedOutput { .. }
            | Self::DamagedContent { .. }
            | Self::Spool(_) => false,
        }
    }

    /// Whether several documents were inserted, and the only ones that were not were there already.
    pub fn is_duplicate_only(&self) -> bool {
        let Self::Database(error) = self else { return false };
        let ErrorKind::InsertMany(many) = error.kind.as_ref() else { return false };
        let failures = many.write_errors.as_deref().unwrap_or_default();
        many.write_concern_error.is_none()
            && !failures.is_empty()
            && failures.iter().all(|failure| failure.code == 11_000)
    }

    /// Whether the user has no right to do this: one that Perl Disbatch made, and a collection that it does not
    /// know.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether the server has broken off the operation, as it took longer than it was allowed to.
    pub fn is_out_of_time(&self) -> bool {
        // MaxTimeMSExpired
        self.write_failure().is_some_and(|failure| failure.code == 50)
    }

    /// Whether this kind of server never has change streams.
    pub fn has_no_change_streams(&self) -> bool {
        // "The $changeStream stage is only supported on replica sets"
        self.write_failure().is_some_and(|failure| failure.code == 40_573)
    }

    /// How the server rejected a write, if that is what happened.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        let Self::Database(error) = self else { return None };
        match error.kind.as_ref() {
            ErrorKind::Write(DriverWriteFailure::WriteError(failure)) => {
                Some(WriteFailure { code: failure.code, message: failure.message.clone() })
            }
            ErrorKind::InsertMany(many) => many
                .write_errors
                .as_ref()?
                .first()
                .map(|failure| WriteFailure { code: failure.code, message: failure.message.clone() }),
            ErrorKind::Command(command) => {
                let message = command.message.strip_prefix(FIND_AND_MODIFY).unwrap_or(&command.message);
                Some(WriteFailure { code: command.code, message: message.to_owned() })
            }
            _ => None,
        }
    }
}

impl From<mongodb::error::Error> for StoreError {
    fn from(source: mongodb::error::Error) -> Self {
        match source.kind.as_ref() {
            ErrorKind::ServerSelection { message, .. } => Self::Unreachable { reason: shorten(message) },
            ErrorKind::Io(error) => Self::Unreachable { reason: error.to_string() },
            ErrorKind::ConnectionPoolCleared { message, .. } => {
                Self::Unreachable { reason: shorten(message) }
            }
            ErrorKind::DnsResolve { message, .. } => Self::Unreachable { reason: shorten(message) },
            ErrorKind::Authentication { message, .. } => Self::Refused { reason: shorten(message) },
            // 13 Unauthorized, 18 AuthenticationFailed
            ErrorKind::Command(command) if matches!(command.code, 13 | 18) => {
                Self::Refused { reason: command.message.clone() }
            }
            _ => Self::Database(source),
        }
    }
}

fn describe(error: &mongodb::error::Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => command.message.clone(),
        ErrorKind::Write(DriverWriteFailure::WriteError(failure)) => failure.message.clone(),
        ErrorKind::Write(DriverWriteFailure::WriteConcernError(failure)) => failure.message.clone(),
        ErrorKind::InvalidArgument { message, .. } | ErrorKind::InvalidTlsConfig { message, .. } => {
            shorten(message)
        }
        _ => shorten(&error.to_string()),
    }
}

/// The driver describes its whole view of the topology; the first sentence tells what happened, and the
/// innermost `Error:` why.
fn shorten(message: &str) -> String {
    let first = message.split(". Topology:").next().unwrap_or(message);
    let servers: Vec<&str> =
        message.split("Address: ").skip(1).filter_map(|part| part.split([',', ' ']).next()).collect();
    let cause = message.split("Error: ").nth(1).and_then(|rest| rest.split([',', '}']).next());
    let cause = cause.map(|cause| cause.trim_start_matches("Kind: "));
    let mut text = first.trim().trim_end_matches('.').replace('\n', " ");
    if !servers.is_empty() {
        text = format!("{text} at {}", servers.join(", "));
    }
    match cause {
        Some(cause) if !text.contains(cause.trim()) => format!("{text}: {}", cause.trim()),
        _ => text,
    }
}

/// Whether an index that was hinted at is not there (`BadValue`).
pub(crate) fn is_no_index(error: &mongodb::error::Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == 2)
}

/// Turns a document into its type, naming the document when it cannot.
pub(crate) fn typed<T: serde::de::DeserializeOwned>(
    collection: &'static str,
    document: impl Into<Document>,
) -> Result<T, StoreError> {
    let document = document.into();
    let id = document.get("_id").map_or_else(|| "without _id".to_owned(), ToString::to_string);
    // As bytes, so that what looks like extended JSON can be read as it is.
    bson::serialize_to_vec(&document)
        .and_then(|bytes| bson::deserialize_from_slice(&bytes))
        .map_err(|why| StoreError::Document { collection, id, why: Box::new(why) })
}

/// Reads a document as its type, naming it when it cannot be read. Unlike a cursor of documents, one of such bytes goes on behind what
/// cannot be read.
pub(crate) fn read<T: serde::de::DeserializeOwned>(
    collection: &'static str,
    raw: &bson::RawDocument,
) -> Result<T, StoreError> {
    bson::deserialize_from_slice(raw.as_bytes()).map_err(|source| {
        let id = raw.get("_id").ok().flatten();
        let id = id.map_or_else(|| "without _id".to_owned(), |id| format!("{id:?}"));
        StoreError::Document { collection, id, why: Box::new(source) }
    })
}
