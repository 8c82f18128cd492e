//! What is counted of tasks, with durations by their length, and how it is stored. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Status;

/// Durations beyond this bucket count in it.
const LAST: u8 = 63;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// Well: 1.
    pub succeeded: u64,
    /// Failed, or with a status of the plugin's own: 2 and above.
    pub failed: u64,
    /// Terminated (-3), cancelled (-5) or orphaned (-6).
    pub other: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    pub ended: Ended,
    /// How long those had waited that were started.
    pub waited: Histogram,
    /// How long the plugins of those ran that ended.
    pub ran: Histogram,
}

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
        let counts = [succeeded, failed, other, self.waited.total_ms, self.ran.total_ms];
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

/// How many durations there are of each length, to a factor of the square root of 2.
///
/// Bucket 0 is for less than 1 ms. Bucket *n* is for durations from 2^((*n* - 1) / 2) ms on and below 2^(*n* / 2) ms: 1, 1.41, 2,
/// 2.83, 4 ms and so on. The last one, 63, begins at 25 days and has all that is longer too. The number of buckets, and so the
/// memory, is bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Those that are not empty.
    buckets: BTreeMap<u8, u64>,
    total_ms: u64,
}

impl Histogram {
    pub fn add(&mut self, duration: Duration, times: u64) {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.add_to_bucket(bucket_of(ms), times);
        self.add_to_total(ms.saturating_mul(times));
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, times) in other.buckets() {
            self.add_to_bucket(bucket, times);
        }
        self.add_to_total(other.total_ms);
    }

    pub fn count(&self) -> u64 {
        self.buckets.values().fold(0, |sum, times| sum.saturating_add(*times))
    }

    pub fn mean(&self) -> Option<Duration> {
        self.total_ms.checked_div(self.count()).map(Duration::from_millis)
    }

    /// The duration that `percent` of them do not exceed, as an estimate: it is off by a factor of at most 1.42, or, below
    /// 1 ms, by less than that. What is longer than 35 days is told as less, as the last bucket would end there. `None`:
    /// there are none.
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let count = u128::from(self.count());
        let rank = (count * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut before = 0;
        for (bucket, times) in self.buckets() {
            let times = u128::from(times);
            if times > 0 && before + times >= rank {
                return Some(within(bucket, rank - before, times));
            }
            before += times;
        }
        None
    }

    fn buckets(&self) -> impl Iterator<Item = (u8, u64)> {
        self.buckets.iter().map(|(bucket, times)| (*bucket, *times))
    }

    fn add_to_bucket(&mut self, bucket: u8, times: u64) {
        if times > 0 {
            let known = self.buckets.entry(bucket.min(LAST)).or_default();
            *known = known.saturating_add(times);
        }
    }

    fn add_to_total(&mut self, ms: u64) {
        self.total_ms = self.total_ms.saturating_add(ms);
    }
}

/// In whole numbers, so that a duration is in the same bucket everywhere.
fn bucket_of(ms: u64) -> u8 {
    let Some(whole) = ms.checked_ilog2() else { return 0 };
    let square = u128::from(ms) * u128::from(ms);
    let is_upper = square >= 1 << (2 * whole + 1);
    let bucket = 1 + 2 * whole + u32::from(is_upper);
    u8::try_from(bucket).unwrap_or(LAST).min(LAST)
}

/// The duration at a place among the durations of a bucket, as if they were spread evenly by their logarithm.
fn within(bucket: u8, place: u128, of: u128) -> Duration {
    // The share that is needed is no more exact than this.
    let number = |number: u128| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let share = (number(place) - 0.5) / number(of);
    let ms = match bucket.checked_sub(1) {
        None => share,
        Some(halves) => ((f64::from(halves) + share) / 2.0).exp2(),
    };
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
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

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|ms| histogram.add(Duration::from_millis(*ms), 1));
        histogram
    }

    #[test]
    fn buckets_are_half_powers_of_two() {
        let cases =
            [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5), (5, 5), (6, 6), (8, 7), (1000, 20), (60_000, 32)];
        for (ms, bucket) in cases {
            assert_eq!(bucket_of(ms), bucket, "{ms} ms");
        }
        assert_eq!(bucket_of(24 * 24 * 3_600_000), LAST - 1);
        assert_eq!((bucket_of(1 << 31), bucket_of(u64::MAX)), (LAST, LAST));
    }

    #[test]
    fn without_durations_there_is_no_percentile() {
        let none = Histogram::default();
        assert_eq!((none.count(), none.mean(), none.percentile(50)), (0, None, None));
    }

    #[test]
    fn what_is_longer_than_the_last_bucket_is_told_as_its_end() {
        let day = 24 * 3_600_000;
        for days in [26, 34, 100, 4_000] {
            let estimate = of(&[days * day]).percentile(100).unwrap();
            assert!((25..36).contains(&(estimate.as_secs() / (24 * 3600))), "{days} days: {estimate:?}");
        }
    }

    #[test]
    fn percentiles_of_a_known_spread_are_near() {
        let spread: Vec<u64> = (1..=1000).collect();
        let histogram = of(&spread);
        assert_eq!(histogram.mean(), Some(Duration::from_millis(500)));
        for (percent, exact) in [(50, 500.0), (95, 950.0), (99, 990.0)] {
            let ms = histogram.percentile(percent).unwrap().as_secs_f64() * 1000.0;
            assert!((ms / exact - 1.0).abs() < 0.1, "{percent}: {ms} ms");
        }
    }

    fn any_duration() -> impl Strategy<Value = u64> {
        // As many short ones as long ones.
        (0_u32..31, any::<u64>()).prop_map(|(bits, low)| low % (1 << bits))
    }

    proptest! {
        #[test]
        fn a_duration_is_within_the_bounds_of_its_bucket(ms in 1_u64..1 << 31) {
            let bucket = i32::from(bucket_of(ms));
            let squared = u128::from(ms).pow(2);
            prop_assert!(squared >= 1 << (bucket - 1) && squared < 1 << bucket);
        }

        /// The estimate is no further from a true percentile than a bucket is wide.
        #[test]
        fn percentiles_are_within_a_factor(
            mut durations in prop::collection::vec(any_duration(), 1..200), percent in 0_u8..=100,
        ) {
            let estimate = of(&durations).percentile(percent).unwrap().as_secs_f64() * 1000.0;
            durations.sort_unstable();
            let rank = (durations.len() * usize::from(percent)).div_ceil(100).max(1);
            let exact = durations[rank - 1];
            if exact == 0 {
                prop_assert!((0.0..1.0).contains(&estimate));
            } else {
                #[expect(clippy::cast_precision_loss, reason = "below 2^31")]
                let factor = estimate / exact as f64;
                prop_assert!((0.70..1.42).contains(&factor), "{estimate} for {exact}");
            }
        }

        #[test]
        fn percentiles_do_not_fall(durations in prop::collection::vec(any_duration(), 1..100)) {
            let histogram = of(&durations);
            let all: Vec<Duration> = (0..=100).map(|percent| histogram.percentile(percent).unwrap()).collect();
            prop_assert!(all.is_sorted());
        }

        #[test]
        fn merged_is_as_if_counted_together(
            some in prop::collection::vec(any_duration(), 0..50), more in prop::collection::vec(any_duration(), 0..50),
        ) {
            let mut merged = of(&some);
            merged.merge(&of(&more));
            prop_assert_eq!(merged, of(&[some, more].concat()));
        }
    }
}
