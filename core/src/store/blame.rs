//! Whose fault an error is: a document's, or the database's. One task must not hold up anything but itself, so what fails because of
//! one document is no reason to leave the database alone.

use mongodb::error::ErrorKind;

use super::StoreError;

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

/// Codes of the server's own troubles (`error_codes.yml` of MongoDB). Those that say that it is no primary are in
/// [`super::WriteFailure::is_refusal`].
const OF_DATABASE: [i32; 44] = [
    6,      // HostUnreachable
    7,      // HostNotFound
    13,     // Unauthorized
    18,     // AuthenticationFailed
    20,     // IllegalOperation: transaction numbers, by a server that is no replica set
    23,     // AlreadyInitialized
    24,     // LockTimeout
    26,     // NamespaceNotFound
    43,     // CursorNotFound
    46,     // LockBusy
    50,     // MaxTimeMSExpired
    59,     // CommandNotFound
    64,     // WriteConcernFailed
    74,     // NodeNotFound
    79,     // UnknownReplWriteConcern
    82,     // NoProgressMade
    89,     // NetworkTimeout
    90,     // CallbackCanceled
    94,     // NotYetInitialized
    95,     // NotPrimaryOrSecondary
    100,    // UnsatisfiableWriteConcern
    133,    // FailedToSatisfyReadPreference
    134,    // ReadConcernMajorityNotAvailableYet
    136,    // CappedPositionLost
    146,    // ExceededMemoryLimit
    175,    // QueryPlanKilled
    202,    // NetworkInterfaceExceededTimeLimit
    211,    // KeyNotFound: of the cluster time
    213,    // CursorInUse
    234,    // RetryChangeStream
    237,    // CursorKilled
    246,    // SnapshotUnavailable
    251,    // NoSuchTransaction
    262,    // ExceededTimeLimit
    290,    // TransactionExceededLifetimeLimitSeconds
    317,    // ConnectionPoolExpired
    365,    // TemporarilyUnavailable
    391,    // ReauthenticationRequired
    462,    // IngressRequestRateLimitExceeded
    8_000,  // AtlasError
    9_001,  // SocketException
    11_601, // Interrupted
    13_388, // StaleConfig
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

impl StoreError {
    /// What an operation that concerns one document failed because of.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unreachable { .. } | Self::Unconfirmed { .. } | Self::Refused { .. } => Blame::Database,
            Self::Document { .. }
            | Self::DamagedOutput { .. }
            | Self::DamagedContent { .. }
            | Self::Spool(_) => Blame::Document,
            Self::Database(_) if self.is_transient() => Blame::Database,
            Self::Database(error) => match self.write_failure() {
                Some(failure) if failure.is_refusal() => Blame::Database,
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
        let refusals = [91, 112, 189, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436];
        for code in refusals.into_iter().chain(OF_DATABASE) {
            assert_eq!(command(code).blame(), Blame::Database, "{code}");
            assert!(!write(code).is_about_one(), "{code}");
        }
        let away = StoreError::Unconfirmed { reason: "no majority".to_owned() };
        assert_eq!(away.blame(), Blame::Database);
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(StoreError::from(Error::from(io)).blame(), Blame::Database);
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
