//! What can go wrong with the database, in one line each. A message has its cause in it, so no error has a `source`: who prints
//! a chain would print the cause twice.
//!
//! Whose fault an error is, a document's or the database's, tells [`Blame`]. One task must not hold up anything but itself, so what fails
//! because of one document is no reason to leave the database alone.

use bson::Document;
use mongodb::error::{ErrorKind, WriteError, WriteFailure as DriverWriteFailure};

/// What the server says first when it could not change a document that it was to answer. What follows is the same as
/// for one that it was only to change.
const FIND_AND_MODIFY: &str = "Plan executor error during findAndModify :: caused by :: ";

/// The code with which a server refuses a document that would be larger than 16 MiB.
const TOO_LARGE: i32 = 17_419;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No server answers, or none that takes this operation.
    #[error("cannot reach MongoDB: {reason}")]
    Unreachable { reason: String },
    #[error("MongoDB refused the credentials: {reason}")]
    Refused { reason: String },
    /// The server has not confirmed writes: it is no primary any more, or has not heard from a majority. They may
    /// have been made.
    #[error("MongoDB has not confirmed a write: {reason}")]
    Unconfirmed { reason: String },
    #[error("{}", describe(.0))]
    Database(mongodb::error::Error),
    #[error("cannot read document {id} of {collection}: {why}")]
    Document { collection: &'static str, id: String, why: Box<bson::error::Error> },
    #[error("output file {id} is damaged: {reason}")]
    DamagedOutput { id: bson::oid::ObjectId, reason: String },
    /// A content of file sets is incomplete, or not what it should be. `id`: its SHA-256.
    #[error("the content {id} is damaged: {reason}")]
    DamagedContent { id: String, reason: String },
    #[error("cannot read captured output: {0}")]
    Spool(std::io::Error),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteFailure {
    /// MongoDB's error code: 11000 for a duplicate key.
    pub code: i32,
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

    /// Whether the server's cache is full of what has still to be written to disk: it has undone the write, and asks for it again later.
    pub fn is_out_of_cache(&self) -> bool {
        OUT_OF_CACHE.contains(&self.code)
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

    /// Nobody knows whether writes were made.
    pub(crate) fn unconfirmed(why: impl ToString) -> Self {
        Self::Unconfirmed { reason: why.to_string() }
    }

    /// Whether trying again later may help: the server was away, busy electing a primary, or its cache was full, for instance.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Unconfirmed { .. } => true,
            Self::Database(error) => {
                error.contains_label(mongodb::error::RETRYABLE_WRITE_ERROR)
                    || error.contains_label(mongodb::error::RETRYABLE_ERROR)
                    || self.code().is_some_and(passes)
            }
            Self::Refused { .. }
            | Self::Document { .. }
            | Self::DamagedOutput { .. }
            | Self::DamagedContent { .. }
            | Self::Spool(_) => false,
        }
    }

    /// Whether it is the server that has to be waited for, and not an operation that was broken off and would take as long again.
    pub fn is_away(&self) -> bool {
        self.is_transient() && !self.code().is_some_and(|code| matches!(code, 24 | 262 | 11_601))
    }

    /// What came of an operation to which this user may have no right ([`StoreError::is_forbidden`]). `None`: it was refused for that.
    pub fn unless_forbidden<T>(done: Result<T, impl Into<Self>>) -> Result<Option<T>, Self> {
        Self::unless(done, Self::is_forbidden)
    }

    /// What came of an operation that may take only so long ([`StoreError::is_out_of_time`]). `None`: it was broken off.
    pub(crate) fn unless_out_of_time<T>(done: Result<T, impl Into<Self>>) -> Result<Option<T>, Self> {
        Self::unless(done, Self::is_out_of_time)
    }

    /// What came of the insertion of something that may be there already. `None`: it was.
    pub(crate) fn unless_duplicate<T>(inserted: Result<T, impl Into<Self>>) -> Result<Option<T>, Self> {
        Self::unless(inserted, Self::is_duplicate_key)
    }

    fn unless<T>(
        done: Result<T, impl Into<Self>>,
        is_expected: fn(&Self) -> bool,
    ) -> Result<Option<T>, Self> {
        match done.map_err(Into::<Self>::into) {
            Err(error) if is_expected(&error) => Ok(None),
            done => done.map(Some),
        }
    }

    /// Whether a unique index forbids the write.
    pub fn is_duplicate_key(&self) -> bool {
        self.write_failure().is_some_and(|failure| failure.is_duplicate_key())
    }

    pub(crate) fn is_no_collection(&self) -> bool {
        self.write_failure().is_some_and(|failure| failure.code == 26)
    }

    /// Whether an index that was hinted at is not there (`BadValue`).
    pub(crate) fn is_no_index(&self) -> bool {
        self.write_failure().is_some_and(|failure| failure.code == 2)
    }

    /// Whether a document would exceed the server's 16 MiB.
    pub(crate) fn is_too_large(&self) -> bool {
        self.write_failure().is_some_and(|failure| failure.is_too_large())
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
        self.code() == Some(50)
    }

    /// Whether the server refuses every write for now: it is no primary, is shutting down, or is busy.
    pub(crate) fn is_refusal(&self) -> bool {
        self.write_failure().is_some_and(|failure| REFUSALS.contains(&failure.code))
    }

    /// Whether it was asked of a server that stands alone what only members of replica sets can tell.
    pub(crate) fn is_no_replica_set(&self) -> bool {
        // NotAReplicaSet
        self.write_failure().is_some_and(|failure| failure.code == 123)
    }

    /// Whether this kind of server never has change streams.
    pub fn has_no_change_streams(&self) -> bool {
        // "The $changeStream stage is only supported on replica sets"
        self.write_failure().is_some_and(|failure| failure.code == 40_573)
    }

    /// The code of what the server says: of why it rejected an operation, or of why it has not confirmed a write that it has made.
    fn code(&self) -> Option<i32> {
        let Self::Database(error) = self else { return None };
        let unconfirmed = match error.kind.as_ref() {
            ErrorKind::Write(DriverWriteFailure::WriteConcernError(late)) => Some(late),
            ErrorKind::InsertMany(many) => many.write_concern_error.as_ref(),
            _ => None,
        };
        let rejected = || self.write_failure().map(|failure| failure.code);
        unconfirmed.map(|late| late.code).or_else(rejected)
    }

    /// How the server rejected a write, if that is what happened.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        let Self::Database(error) = self else { return None };
        let (code, message) = match error.kind.as_ref() {
            ErrorKind::Write(DriverWriteFailure::WriteError(failure)) => (failure.code, &*failure.message),
            ErrorKind::InsertMany(many) => {
                let failure = many.write_errors.as_ref()?.first()?;
                (failure.code, &*failure.message)
            }
            ErrorKind::Command(command) => {
                (command.code, command.message.strip_prefix(FIND_AND_MODIFY).unwrap_or(&command.message))
            }
            _ => return None,
        };
        Some(WriteFailure { code, message: message.to_owned() })
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Unreachable { .. } | Self::Unconfirmed { .. } | Self::Refused { .. } => Blame::Database,
            Self::Document { .. }
            | Self::DamagedOutput { .. }
            | Self::DamagedContent { .. }
            | Self::Spool(_) => Blame::Document,
            Self::Database(_) if self.is_transient() => Blame::Database,
            Self::Database(error) => match self.write_failure() {
                Some(failure) => of_code(failure.code),
                None => of_kind(&error.kind),
            },
        }
    }

    /// Whether it is no trouble of the database itself: what concerns other documents may go on.
    pub fn is_about_one(&self) -> bool {
        self.blame() != Blame::Database
    }
}

impl From<mongodb::error::Error> for StoreError {
    fn from(source: mongodb::error::Error) -> Self {
        match source.kind.as_ref() {
            ErrorKind::ServerSelection { message, .. }
            | ErrorKind::ConnectionPoolCleared { message, .. }
            | ErrorKind::DnsResolve { message, .. } => Self::Unreachable { reason: shorten(message) },
            ErrorKind::Io(error) => Self::Unreachable { reason: error.to_string() },
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

/// What an operation that concerns one document failed because of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The database is away, busy, full, or does not let us in: nothing else will work either. Wait.
    Database,
    /// The document is too large, has a value of a type that the operation cannot use, or cannot be read. It will fail again.
    Document,
    /// The server refused this one operation for a reason that says neither. Others may work.
    Unclear,
}

/// Codes with which a server refuses every write for now: it is no primary, is shutting down, or is busy.
const REFUSALS: [i32; 9] = [91, 112, 189, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436];

/// Codes with which it has undone a write because its cache was full: TemporarilyUnavailable, TransactionTooLargeForCache.
const OUT_OF_CACHE: [i32; 2] = [365, 388];

/// Codes of other troubles that pass by themselves (`error_codes.yml` of MongoDB): a server that is away from its router, or starts; a wait that was too
/// long; an operation that was broken off.
const PASSING: [i32; 22] = [
    6,      // HostUnreachable
    7,      // HostNotFound
    24,     // LockTimeout
    43,     // CursorNotFound
    46,     // LockBusy
    64,     // WriteConcernFailed
    82,     // NoProgressMade
    89,     // NetworkTimeout
    90,     // CallbackCanceled
    94,     // NotYetInitialized
    95,     // NotPrimaryOrSecondary
    133,    // FailedToSatisfyReadPreference
    134,    // ReadConcernMajorityNotAvailableYet
    175,    // QueryPlanKilled
    202,    // NetworkInterfaceExceededTimeLimit
    237,    // CursorKilled
    262,    // ExceededTimeLimit
    317,    // ConnectionPoolExpired
    462,    // IngressRequestRateLimitExceeded
    9_001,  // SocketException
    11_601, // Interrupted
    13_388, // StaleConfig
];

/// Codes of other troubles of the server, or of how it is set up: it may be waited for an end of them in vain.
const OF_DATABASE: [i32; 21] = [
    13,     // Unauthorized
    18,     // AuthenticationFailed
    20,     // IllegalOperation: transaction numbers, by a server that is no replica set
    23,     // AlreadyInitialized
    26,     // NamespaceNotFound
    50,     // MaxTimeMSExpired
    59,     // CommandNotFound
    74,     // NodeNotFound
    79,     // UnknownReplWriteConcern
    100,    // UnsatisfiableWriteConcern
    136,    // CappedPositionLost
    146,    // ExceededMemoryLimit
    211,    // KeyNotFound: of the cluster time
    213,    // CursorInUse
    234,    // RetryChangeStream
    246,    // SnapshotUnavailable
    251,    // NoSuchTransaction
    290,    // TransactionExceededLifetimeLimitSeconds
    391,    // ReauthenticationRequired
    8_000,  // AtlasError
    14_031, // OutOfDiskSpace
];

/// Codes below 10,000 that tell of the document that was to be changed.
const OF_DOCUMENT: [i32; 19] = [
    2,   // BadValue: an operator met a value of another type
    14,  // TypeMismatch
    15,  // Overflow
    16,  // InvalidLength
    21,  // EmptyArrayOperation
    22,  // InvalidBSON
    28,  // PathNotViable
    40,  // ConflictingUpdateOperators
    52,  // DollarPrefixedFieldName
    53,  // InvalidIdField
    54,  // NotSingleValueField
    55,  // InvalidDBRef
    56,  // EmptyFieldName
    57,  // DottedFieldName
    66,  // ImmutableField
    121, // DocumentValidationFailure
    171, // CannotIndexParallelArrays
    241, // ConversionFailure
    284, // BSONObjectTooLarge
];

/// From here on codes are those of single checks in the server: of expressions that met another type, and of sizes.
const CHECKS: i32 = 10_000;

fn passes(code: i32) -> bool {
    REFUSALS.contains(&code) || OUT_OF_CACHE.contains(&code) || PASSING.contains(&code)
}

fn of_code(code: i32) -> Blame {
    match code {
        // Another document has what this one wants: that can change.
        11_000 => Blame::Unclear,
        code if OF_DATABASE.contains(&code) => Blame::Database,
        code if OF_DOCUMENT.contains(&code) || code >= CHECKS => Blame::Document,
        _ => Blame::Unclear,
    }
}

/// What the driver itself found.
fn of_kind(kind: &ErrorKind) -> Blame {
    match kind {
        // It cannot be read, cannot be written, or is larger than a message may be.
        ErrorKind::BsonDeserialization(_)
        | ErrorKind::BsonSerialization(_)
        | ErrorKind::Bson(_)
        | ErrorKind::InvalidArgument { .. }
        | ErrorKind::InvalidResponse { .. } => Blame::Document,
        // All others are about the connection or the server.
        _ => Blame::Database,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use mongodb::error::{CommandError, Error};
    use proptest::prelude::*;

    use super::*;

    fn command(code: i32) -> StoreError {
        let error = doc! { "code": code, "codeName": "Name", "errmsg": "what it says" };
        let error: CommandError = bson::deserialize_from_document(error).unwrap();
        StoreError::from(Error::from(ErrorKind::Command(error)))
    }

    fn write(code: i32) -> StoreError {
        let error = doc! { "code": code, "errmsg": "what it says" };
        let error = bson::deserialize_from_document(error).unwrap();
        let failure = mongodb::error::WriteFailure::WriteError(error);
        StoreError::from(Error::from(ErrorKind::Write(failure)))
    }

    /// A write that was made, and that a majority has not confirmed.
    fn late(code: i32) -> StoreError {
        let error = doc! { "code": code, "codeName": "Name", "errmsg": "what it says" };
        let error = bson::deserialize_from_document(error).unwrap();
        let failure = mongodb::error::WriteFailure::WriteConcernError(error);
        StoreError::from(Error::from(ErrorKind::Write(failure)))
    }

    #[test]
    fn the_size_and_the_types_of_a_document_are_its_own_fault() {
        for code in [10_334, 17_419, 17_420, 17_280, 2, 14, 28, 121, 171, 16_554, 16_020, 7_157_723] {
            assert_eq!(command(code).blame(), Blame::Document, "{code}");
            assert_eq!(write(code).blame(), Blame::Document, "{code}");
        }
        let broken = bson::deserialize_from_slice::<bson::Document>(&[5, 0, 0]).unwrap_err();
        let unreadable =
            StoreError::Document { collection: "tasks", id: "1".to_owned(), why: Box::new(broken) };
        assert!(unreadable.is_about_one());
    }

    #[test]
    fn a_server_that_is_away_busy_or_full_is_nobodys_fault() {
        for code in REFUSALS.into_iter().chain(PASSING).chain(OF_DATABASE) {
            assert_eq!(command(code).blame(), Blame::Database, "{code}");
            assert!(!write(code).is_about_one(), "{code}");
        }
        let away = StoreError::Unconfirmed { reason: "no majority".to_owned() };
        assert_eq!(away.blame(), Blame::Database);
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(StoreError::from(Error::from(io)).blame(), Blame::Database);
    }

    /// A server that stands alone gives no labels, nor does the driver to a command that is not its own.
    #[test]
    fn what_passes_is_waited_for_whether_it_has_a_label_or_not() {
        for code in REFUSALS.into_iter().chain(PASSING) {
            assert!(command(code).is_transient() && write(code).is_transient(), "{code}");
            assert!(late(code).is_transient(), "{code}");
        }
        // They would be waited for in vain, or say by themselves how long.
        for code in [20, 26, 50, 79, 100, 121] {
            assert!(!command(code).is_transient() && !late(code).is_transient(), "{code}");
        }
        assert!(late(50).is_out_of_time() && !late(50).is_about_one());
    }

    #[test]
    fn a_full_cache_is_waited_for() {
        for error in [command(365), write(365), command(388), write(388)] {
            assert!(error.is_transient(), "{error}");
            assert_eq!(error.blame(), Blame::Database);
        }
        assert!(!write(11_000).is_transient());
    }

    #[test]
    fn a_taken_key_is_nothing_to_end_a_task_for() {
        assert_eq!(write(11_000).blame(), Blame::Unclear);
        assert!(write(11_000).is_about_one());
    }

    proptest! {
        #[test]
        fn what_is_transient_is_never_blamed_on_a_document(code in any::<i32>()) {
            for error in [command(code), write(code)] {
                if error.is_transient() || error.is_out_of_time() || error.is_forbidden() {
                    prop_assert_eq!(error.blame(), Blame::Database);
                }
            }
        }
    }
}
