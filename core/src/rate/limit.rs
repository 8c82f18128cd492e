//! What a rate allows, and the arithmetic of it. Pure.
//!
//! The rule is the generic cell rate algorithm. There is a time at which all starts so far are paid for, if one is paid for
//! in each interval. A start moves it on by an interval, from now if it is past. One is allowed as long as that time is then
//! not further away than `burst` intervals. So in any stretch of time there are never more starts than intervals fit into it,
//! and `burst` more.

use std::time::Duration;

use bson::Bson;

use crate::model::{Policy, Queue, whole_number};

/// The field of a queue for all of its tasks.
pub const OF_QUEUE: &str = "rate";

/// The field of a queue for the tasks of each of its groups.
pub const OF_GROUPS: &str = "group_rate";

/// The largest `n`.
pub const MOST: i64 = 100_000;

/// The longest `per`, in seconds: a week.
pub const LONGEST: i64 = 604_800;

/// The largest `burst`. Times are counted in nanoseconds since 1970, in 64 bits: it must not take too long to be paid for.
pub const LARGEST: i64 = 10_000;

/// Without `burst`, what comes in a second divided by this may come at once.
const PART_OF_A_SECOND: i64 = 10;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// So many starts in so long, and so many at once after a while without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many may start in `per`.
    pub n: u64,
    /// Seconds.
    pub per: u64,
    /// How many may start at once.
    pub burst: u64,
}

impl Rate {
    /// The rate of a queue. A value that makes no sense counts as not given: the DCI lets none through.
    pub fn of_queue(queue: &Queue) -> Option<Self> {
        Self::read(queue.rest.get(OF_QUEUE)?)
    }

    /// The rate of each group of a queue, as [`Rate::of_queue`]. Only a fair queue goes by groups.
    pub fn of_groups(queue: &Queue) -> Option<Self> {
        let groups = queue.rest.get(OF_GROUPS).filter(|_| queue.policy() == Policy::Fair);
        Self::read(groups?)
    }

    /// Reads `{n, per, burst}`. Without `burst`, that is a tenth of what comes in a second, and one at least.
    pub fn read(value: &Bson) -> Option<Self> {
        let document = value.as_document()?;
        let number = |key: &str, most: i64| {
            document.get(key).and_then(whole_number).filter(|number| (1..=most).contains(number))
        };
        let (n, per) = (number("n", MOST)?, number("per", LONGEST)?);
        let usual = (n / (per * PART_OF_A_SECOND)).max(1);
        let burst = if document.contains_key("burst") { number("burst", LARGEST)? } else { usual };
        Some(Self { n: n.unsigned_abs(), per: per.unsigned_abs(), burst: burst.unsigned_abs() })
    }

    /// How long one start is paid for, in nanoseconds: rounded up, so that there are never too many.
    pub(super) fn interval(&self) -> i64 {
        let per = i64::try_from(self.per).unwrap_or(LONGEST).clamp(1, LONGEST);
        let n = i64::try_from(self.n).unwrap_or(MOST).clamp(1, MOST);
        (per * NANOS_PER_SECOND + n - 1) / n
    }

    /// How far ahead of now that time may be after a start.
    pub(super) fn reach(&self) -> i64 {
        self.interval() * i64::try_from(self.burst).unwrap_or(LARGEST).clamp(1, LARGEST)
    }
}

/// Milliseconds since 1970 as nanoseconds.
pub(super) fn nanos(millis: i64) -> i64 {
    millis.saturating_mul(NANOS_PER_MILLI)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Take<I> {
    pub id: I,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// How many starts, without those that were given back.
    pub n: i64,
}

/// The starts of a rate so far.
///
/// What was taken last is kept apart: when some of it is given back, it has to be as if it had never been taken. It would
/// not do to subtract it from the time at which all is paid for: that may have moved on to a later now since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken<I> {
    /// When all that was taken before is paid for, in nanoseconds since 1970.
    pub tat: i64,
    /// What was taken last, in order.
    pub takes: Vec<Take<I>>,
}

impl<I> Taken<I> {
    /// When all is paid for.
    pub fn paid(&self, rate: &Rate) -> i64 {
        let interval = rate.interval();
        // By another rate it may have been more than this one can count.
        let after = |tat: i64, take: &Take<I>| {
            tat.max(nanos(take.at)).saturating_add(take.n.saturating_mul(interval))
        };
        self.takes.iter().fold(self.tat, after)
    }

    /// How many starts are allowed at `now`, in milliseconds since 1970.
    pub fn allowed(&self, rate: &Rate, now: i64) -> u64 {
        let now = nanos(now);
        let left = now + rate.reach() - self.paid(rate).max(now);
        u64::try_from(left / rate.interval()).unwrap_or(0)
    }

    /// How long after `now` the next start is allowed. `None`: one is at once.
    pub fn wait(&self, rate: &Rate, now: i64) -> Option<Duration> {
        let from = self.paid(rate) - (rate.reach() - rate.interval());
        let millis = from.div_euclid(NANOS_PER_MILLI) + i64::from(from.rem_euclid(NANOS_PER_MILLI) > 0);
        u64::try_from(millis - now).ok().filter(|wait| *wait > 0).map(Duration::from_millis)
    }

    /// Whether that time is further away than starts can have moved it: the rate was another one then, or the server's clock
    /// has gone back.
    pub fn is_out_of_reach(&self, rate: &Rate, now: i64) -> bool {
        self.paid(rate) > nanos(now) + rate.reach()
    }
}

#[cfg(test)]
mod tests;
