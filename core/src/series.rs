//! Numbers over time: how many tasks of each queue ended in each minute and how, how long they had waited, and how long
//! they ran; and what nodes were like. They are for pictures, and decide nothing.
//!
//! Who starts or ends a task notes it here. Each process adds up what it has noted in memory, and writes it at most
//! every five seconds, and before it ends, with unordered commands that add to the documents of the minutes, a thousand of
//! them with each. One that has noted nothing writes nothing.
//!
//! **Documents.** `series` has a document for each queue and minute in which something happened, one for each minute
//! over all queues together, and one for each node and minute. They go away after [`KEPT`].
//!
//! | field | of a queue, or of all (`_id.queue` is null) |
//! | --- | --- |
//! | `_id` | `{queue, at}`; `at` is the beginning of the minute |
//! | `at` | the same time, for the index by which documents go away |
//! | `succeeded`, `failed`, `other` | how many tasks ended: 1; 2 and above; -3, -5 and -6 |
//! | `wait_ms`, `w0` ... `w63` | how long the tasks that were started had waited: the sum, and how many by [`Histogram`] |
//! | `run_ms`, `r0` ... `r63` | how long the plugins of those that ended ran, likewise |
//!
//! | field | of a node |
//! | --- | --- |
//! | `_id`, `at` | `{node, at}`, and the same time |
//! | `running`, `load`, `memory_available` | as its first heartbeat in the minute said |
//! | `queues` | what attempts ended there, by the hexadecimal digits of their queue: an object of `succeeded`, `failed`, `other`, `run_ms` and `r0` ... `r63`, as a queue has them |
//!
//! | field | of a canary: see [`crate::canary`] |
//! | --- | --- |
//! | `_id` | `{canary, began}`: the queue's id, and when its canary began |
//! | `at` | when something was added last |
//! | `canary_ended`, `canary_failed`, `others_ended`, `others_failed` | how many attempts ended that were begun while it was there, and how many of them failed |
//!
//! **Minutes** are those of the clock of the process that notes: a task waits in the minute of its start, and runs and
//! ends in the minute of its end. What a clock puts into the future is shown when that minute has come.
//!
//! **Waiting** counts from the time at which a task could be claimed: its creation, its `run_at`, or the moment when it
//! was queued again after an end. A claim that is given back changes nothing about that. **Running** is the `duration`
//! of its `exit`: unknown where no plugin was started or its runner died. An attempt that is followed by another is no
//! end of the task, but counts for its node. A wait begins by the clock of who submitted the task or queued it again, and ends by that of who started it, so it is
//! as exact as the clocks of those hosts agree; what would be below zero counts as zero.
//!
//! **What these numbers do not know.** Where the answer to a command is lost, nobody knows whether it was carried out: its
//! documents are written again, and what is in them may be counted once more each time. What was acknowledged is not. A
//! process that is killed loses what it had not written, and so does one that cannot write for long: it keeps what fits
//! into [`pending::MOST`] documents. What is lost otherwise, the log tells. A runner that works without its DEN writes once, at
//! its end. What Perl's programs do is not noted. So the totals are near the truth and not equal to it; see
//! [`crate::counters`] for numbers that are.
//!
//! A user who may not write `series`, as those that Perl Disbatch made, notes nothing, and one who may not read it sees
//! zeros.

mod numbers;
mod pending;
mod read;

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use tokio::time::Instant;

use crate::canary::Side;
use crate::model::{Canary, NodeName, QueueId, Status, Trial};
use crate::node::Stats;
use crate::notebook::{Notebook, Notes};
use crate::store::{Store, StoreError, between, count_of, integer};
use crate::task::{Run, Waiting};
use pending::Pending;
use read::readable;

pub use numbers::{Ended, Histogram, Numbers};
pub use read::{NodeHour, NodePoint, Point};

pub const KEPT: Duration = Duration::from_secs(8 * 24 * 3600);

/// The shortest step.
const MINUTE_MS: i64 = 60_000;

/// What one process has noted.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pending: Pending,
    /// The minute that a node was last noted for.
    sampled: Option<(NodeName, i64)>,
    /// Until when nothing is said of losses.
    warned_until: Option<Instant>,
}

impl Notes for Series {
    const EVERY: Duration = Duration::from_secs(5);

    fn book(store: &Store) -> &Notebook<Self> {
        &store.series
    }

    fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn give_up(&mut self) {
        self.pending = Pending::default();
    }

    async fn flush(store: &Store) -> Result<(), StoreError> {
        store.flush_series().await
    }
}

/// What became of attempts while a queue tries another version of its plugin. This is what decides whether a canary is taken back
/// ([`crate::canary`]), near the truth as all here: what is counted twice or lost is so for both versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sides {
    /// Those of the version that is tried.
    pub canary: Side,
    pub others: Side,
}

impl Sides {
    /// Its fields, with the names that they are stored by.
    fn fields(&self) -> [(&'static str, u64); 4] {
        [
            ("canary_ended", self.canary.ended),
            ("canary_failed", self.canary.failed),
            ("others_ended", self.others.ended),
            ("others_failed", self.others.failed),
        ]
    }

    fn of_document(document: &Document) -> Self {
        let count = |name: &str| count_of(document, name).unwrap_or(0);
        let side = |ended: &str, failed: &str| Side { ended: count(ended), failed: count(failed) };
        let [canary_ended, canary_failed, others_ended, others_failed] =
            Self::default().fields().map(|(name, _)| name);
        Self { canary: side(canary_ended, canary_failed), others: side(others_ended, others_failed) }
    }

    fn add(&mut self, is_canary: bool, has_failed: bool) {
        let side = if is_canary { &mut self.canary } else { &mut self.others };
        side.ended = side.ended.saturating_add(1);
        side.failed = side.failed.saturating_add(u64::from(has_failed));
    }

    fn merge(&mut self, other: Self) {
        for (side, other) in [(&mut self.canary, other.canary), (&mut self.others, other.others)] {
            side.ended = side.ended.saturating_add(other.ended);
            side.failed = side.failed.saturating_add(other.failed);
        }
    }

    fn statement(&self, queue: ObjectId, began: i64) -> Document {
        let counts = self.fields().into_iter().filter(|(_, count)| *count > 0);
        let increments: Document =
            counts.map(|(name, count)| (name.to_owned(), Bson::from(integer(count)))).collect();
        // It stays as long as anything is added to it.
        let update = doc! { "$inc": increments, "$currentDate": { "at": true } };
        doc! { "q": { "_id": canary_id(queue, began) }, "u": update, "upsert": true }
    }
}

impl Store {
    pub(crate) fn note_start(&self, waiting: &Waiting, at: DateTime) {
        let waited = between(waiting.since, at);
        let queue = self.metrics().queues.of(waiting.queue.0.bytes());
        queue.started.inc();
        queue.wait.observe_time(waited);
        self.note_numbers(waiting.queue, at, |numbers| numbers.waited.add(waited, 1));
    }

    pub(crate) fn note_ends(&self, queue: QueueId, status: Status, tasks: u64) {
        if tasks > 0 {
            self.note_numbers(queue, self.now(), |numbers| numbers.ended.add(status, tasks));
        }
    }

    pub(crate) fn note_run(&self, queue: QueueId, ran: Duration) {
        self.note_numbers(queue, self.now(), |numbers| numbers.ran.add(ran, 1));
    }

    fn note_numbers(&self, queue: QueueId, at: DateTime, change: impl Fn(&mut Numbers)) {
        let minute = minute_of(at);
        self.note::<Series>(|series| series.pending.add(minute, queue, change));
    }

    /// Notes that an attempt has ended on a node, and how long its plugin ran, if that is known.
    pub(crate) fn note_attempt(&self, run: &Run, status: Status, ran: Option<Duration>) {
        let minute = minute_of(self.now());
        self.note::<Series>(|series| {
            series.pending.add_on_node(minute, &run.node, run.queue, |numbers| {
                numbers.ended.add(status, 1);
                if let Some(ran) = ran {
                    numbers.ran.add(ran, 1);
                }
            });
        });
    }

    /// Notes what a node is like, once in each minute.
    pub(crate) fn note_node(&self, node: &NodeName, running: usize, stats: &Stats) {
        let minute = minute_of(self.now());
        self.note::<Series>(|series| {
            if series.sampled.as_ref().is_none_or(|(name, at)| *at != minute || name != node) {
                series.sampled = Some((node.clone(), minute));
                series.pending.sample(minute, node, (running, *stats));
            }
        });
    }

    /// Notes that an attempt has ended while its queue tried a version. What was to stop, or was never to run, says nothing of either version.
    pub(crate) fn note_trial(&self, queue: QueueId, trial: Option<Trial>, status: Status) {
        if let (Some(trial), Some(has_failed)) = (trial, has_failed(status)) {
            self.note::<Series>(|series| series.pending.add_attempt(queue, trial, has_failed));
        }
    }

    /// What became of attempts while a queue has this canary.
    #[operation(queue = %queue)]
    pub async fn canary_sides(&self, queue: QueueId, canary: &Canary) -> Result<Sides, StoreError> {
        let id = canary_id(queue.0, canary.began.timestamp_millis());
        let found = readable(self.series_documents().find_one(doc! { "_id": id }).await)?.flatten();
        Ok(found.as_ref().map(Sides::of_document).unwrap_or_default())
    }
}

/// The beginning of the minute: milliseconds since 1970.
fn minute_of(at: DateTime) -> i64 {
    let at = at.timestamp_millis();
    at - at.rem_euclid(MINUTE_MS)
}

/// Whether an attempt with this end counts as a failure. `None`: it does not count at all.
fn has_failed(status: Status) -> Option<bool> {
    match status {
        Status::Succeeded => Some(false),
        Status::Terminated | Status::Orphaned => Some(true),
        other if other.code() >= 2 => Some(true),
        _ => None, // It was cancelled before it ran, or waits.
    }
}

fn canary_id(queue: ObjectId, began: i64) -> Document {
    doc! { "canary": queue, "began": DateTime::from_millis(began) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_is_read() {
        let mut sides = Sides::default();
        for (is_canary, has_failed) in [(true, true), (true, false), (false, false), (false, false)] {
            sides.add(is_canary, has_failed);
        }
        let statement = sides.statement(ObjectId::from_bytes([1; 12]), 7);
        let increments = statement.get_document("u").unwrap().get_document("$inc").unwrap();
        assert!(!increments.contains_key("others_failed"), "MongoDB need not add nothing: {increments}");
        assert_eq!(Sides::of_document(increments), sides);
        let mut twice = sides;
        twice.merge(sides);
        assert_eq!((twice.canary.ended, twice.canary.failed, twice.others.ended), (4, 2, 4));
        assert_eq!(Sides::of_document(&doc! { "canary_ended": "many" }), Sides::default());
    }

    #[test]
    fn ends_are_successes_or_failures_or_do_not_count() {
        let of = |code: i64| has_failed(Status::from_code(code));
        assert_eq!([1, 2, 17, -3, -6].map(of), [Some(false), Some(true), Some(true), Some(true), Some(true)]);
        assert_eq!([-5, -7, -2].map(of), [None; 3]);
    }
}
