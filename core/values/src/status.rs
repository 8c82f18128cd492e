//! The status of a task and what may follow it.

use std::fmt;

use bson::{Bson, Document};
use serde::{Deserialize, Serialize};

use crate::liberal::integer;

/// Declares the statuses that have a word of their own, in the order of a task's life: each with its number in the database, and its word.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $word:literal,)+) => {
        /// The status of a task (Disbatch 4 design, Task Status Codes).
        ///
        /// Any integer is legal in the database: positive ones are final and belong to the plugin, unused negative
        /// ones keep a task from being claimed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(into = "Bson", try_from = "Bson")]
        pub enum Status {
            $($(#[$doc])* $name,)+
            Other(i64),
        }

        impl Status {
            pub const NAMED: [Self; [$($word),+].len()] = [$(Self::$name),+];

            pub const fn code(self) -> i64 {
                match self {
                    $(Self::$name => $code,)+
                    Self::Other(code) => code,
                }
            }

            /// A word for people. Other values have none beyond their group.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                    Self::Other(1..) => "finished",
                    Self::Other(_) => "held",
                }
            }
        }
    };
}

statuses! {
    Queued = -2 "queued",
    /// A DEN has it, its runner has not started it yet.
    Claimed = -1 "claimed",
    Running = 0 "running",
    Succeeded = 1 "succeeded",
    Failed = 2 "failed",
    /// Not before its `run_at`.
    Deferred = -7 "deferred",
    /// Waits for something.
    Blocked = -4 "blocked",
    /// Before it ran.
    Cancelled = -5 "cancelled",
    /// Was running and was killed.
    Terminated = -3 "terminated",
    /// Its runner or node disappeared.
    Orphaned = -6 "orphaned",
}

/// The three groups in which Disbatch reports tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// What waits: `status <= -2`, unless the task has ended ([`Status::STOPPED`]).
    Queued,
    /// -1 and 0.
    Running,
    /// `status >= 1`.
    Completed,
}

impl Status {
    /// What a task has that has not ended.
    pub const LIVE: [Self; 5] = [Self::Deferred, Self::Blocked, Self::Queued, Self::Claimed, Self::Running];

    /// What a task has that has ended without a result.
    pub const STOPPED: [Self; 3] = [Self::Orphaned, Self::Cancelled, Self::Terminated];

    pub fn from_code(code: i64) -> Self {
        Self::NAMED.into_iter().find(|status| status.code() == code).unwrap_or(Self::Other(code))
    }

    /// That of a task as it is stored. `None`: it has none that is one.
    pub fn stored(task: &Document) -> Option<Self> {
        task.get("status").and_then(integer).map(Self::from_code)
    }

    /// The group in which the task is reported. `None`: it has ended without a result, which is in no group.
    pub const fn phase(self) -> Option<Phase> {
        match self {
            Self::Orphaned | Self::Cancelled | Self::Terminated => None,
            Self::Claimed | Self::Running => Some(Phase::Running),
            other if other.code() >= 1 => Some(Phase::Completed),
            _ => Some(Phase::Queued), // Whatever else is negative waits.
        }
    }

    /// Whether the task is over: nothing happens to it any more unless someone wants it.
    pub const fn has_ended(self) -> bool {
        matches!(self.phase(), None | Some(Phase::Completed))
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|status| status.word() == word)
    }
}

impl From<Status> for Bson {
    /// A 32-bit integer wherever it fits, as every other client writes it.
    fn from(status: Status) -> Self {
        let code = status.code();
        i32::try_from(code).map_or(Bson::Int64(code), Bson::Int32)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.word(), self.code())
    }
}

impl TryFrom<Bson> for Status {
    type Error = String;

    /// Integers of any width, and doubles without a fraction.
    fn try_from(value: Bson) -> Result<Self, String> {
        integer(&value).map(Self::from_code).ok_or_else(|| format!("status {value} is not an integer"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_that_have_a_name_are_read_by_it() {
        for code in -7..=2 {
            assert!(!matches!(Status::from_code(code), Status::Other(_)), "{code}");
        }
    }

    proptest! {
        #[test]
        fn every_integer_survives(code in any::<i64>()) {
            prop_assert_eq!(Status::from_code(code).code(), code);
        }

        #[test]
        fn phases_are_the_ranges_of_the_design_without_what_has_stopped(code in -20i64..20) {
            let expected = match code {
                -6 | -5 | -3 => None,
                ..=-2 => Some(Phase::Queued),
                -1 | 0 => Some(Phase::Running),
                1.. => Some(Phase::Completed),
            };
            let status = Status::from_code(code);
            prop_assert_eq!(status.phase(), expected);
            prop_assert_eq!(Status::STOPPED.contains(&status), expected.is_none());
        }
    }

    #[test]
    fn small_codes_are_written_as_32_bits_and_large_ones_keep_their_value() {
        assert_eq!(Bson::from(Status::Orphaned), Bson::Int32(-6));
        assert_eq!(Bson::from(Status::Other(99_999_999_999)), Bson::Int64(99_999_999_999));
    }
}
