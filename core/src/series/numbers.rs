//! What is counted of tasks, and how it is stored. Pure.

use super::histogram::Histogram;
use crate::model::Status;

/// How many tasks have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// Well: 1.
    pub succeeded: u64,
    /// Failed, or with a status of the plugin's own: 2 and above.
    pub failed: u64,
    /// Terminated (-3), cancelled (-5) or orphaned (-6).
    pub other: u64,
}

/// What happened to tasks in a stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    pub ended: Ended,
    /// How long those had waited that were started.
    pub waited: Histogram,
    /// How long the plugins of those ran that ended.
    pub ran: Histogram,
}

/// The names of the three counts.
pub(super) const ENDED: [&str; 3] = ["succeeded", "failed", "other"];

impl Ended {
    pub fn total(self) -> u64 {
        self.succeeded.saturating_add(self.failed).saturating_add(self.other)
    }

    pub fn merge(&mut self, other: Self) {
        self.succeeded = self.succeeded.saturating_add(other.succeeded);
        self.failed = self.failed.saturating_add(other.failed);
        self.other = self.other.saturating_add(other.other);
    }

    /// Counts tasks that have ended with `status`.
    pub(super) fn add(&mut self, status: Status, tasks: u64) {
        let count = match status.code() {
            1 => &mut self.succeeded,
            2.. => &mut self.failed,
            _ => &mut self.other, // What has ended and is not positive.
        };
        *count = count.saturating_add(tasks);
    }

    /// Adds to one of [`ENDED`], and ignores all else.
    pub(super) fn add_field(&mut self, name: &str, tasks: u64) {
        match name {
            "succeeded" => self.succeeded = self.succeeded.saturating_add(tasks),
            "failed" => self.failed = self.failed.saturating_add(tasks),
            "other" => self.other = self.other.saturating_add(tasks),
            _ => {} // Another field of the document.
        }
    }
}

impl Numbers {
    pub fn merge(&mut self, other: &Self) {
        self.ended.merge(other.ended);
        self.waited.merge(&other.waited);
        self.ran.merge(&other.ran);
    }

    /// The fields of its document that are not zero, as [`crate::series`] describes them.
    pub fn fields(&self) -> impl Iterator<Item = (String, u64)> {
        let Ended { succeeded, failed, other } = self.ended;
        let counts = [succeeded, failed, other, self.waited.total_ms(), self.ran.total_ms()];
        let names = ENDED.into_iter().chain(["wait_ms", "run_ms"]);
        let named = names.map(str::to_owned).zip(counts);
        let waited = self.waited.buckets().map(|(bucket, times)| (format!("w{bucket}"), times));
        let ran = self.ran.buckets().map(|(bucket, times)| (format!("r{bucket}"), times));
        named.chain(waited).chain(ran).filter(|(_, number)| *number > 0)
    }

    /// Adds what a field says. One that is unknown says nothing.
    pub(super) fn add_field(&mut self, name: &str, number: u64) {
        let bucket = |prefix: char| name.strip_prefix(prefix)?.parse::<u8>().ok();
        if name == "wait_ms" {
            self.waited.add_to_total(number);
        } else if name == "run_ms" {
            self.ran.add_to_total(number);
        } else if let Some(bucket) = bucket('w') {
            self.waited.add_to_bucket(bucket, number);
        } else if let Some(bucket) = bucket('r') {
            self.ran.add_to_bucket(bucket, number);
        } else {
            self.ended.add_field(name, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_end_is_of_one_of_three_kinds() {
        let mut ended = Ended::default();
        for code in [1, 2, 7, 99_999_999_999, -3, -5, -6] {
            ended.add(Status::from_code(code), 1);
        }
        assert_eq!(ended, Ended { succeeded: 1, failed: 3, other: 3 });
        assert_eq!(ended.total(), 7);
    }

    #[test]
    fn unknown_fields_say_nothing() {
        let mut numbers = Numbers::default();
        for name in ["_id", "at", "w", "r", "wx", "w-1", "w300", "worse", "é", ""] {
            numbers.add_field(name, 5);
        }
        assert_eq!(numbers, Numbers::default());
    }

    proptest! {
        #[test]
        fn what_is_stored_is_what_is_read(
            codes in prop::collection::vec(-6_i64..5, 0..5), times in prop::collection::vec(0_u64..1 << 40, 0..20),
        ) {
            let mut numbers = Numbers::default();
            codes.iter().for_each(|code| numbers.ended.add(Status::from_code(*code), 3));
            for (number, ms) in times.iter().enumerate() {
                let of = if number % 2 == 0 { &mut numbers.waited } else { &mut numbers.ran };
                of.add(Duration::from_millis(*ms), 2);
            }
            let mut read = Numbers::default();
            for (name, number) in numbers.fields() {
                prop_assert!(number > 0);
                read.add_field(&name, number);
            }
            prop_assert_eq!(read, numbers);
        }
    }
}
