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

mod canaries;
mod numbers;
mod pending;
mod read;

use std::time::Duration;

use bson::{DateTime, Document};
use mongodb::Collection;
use tokio::time::Instant;

use crate::model::{NodeName, QueueId, Status};
use crate::node::Stats;
use crate::notebook::{Notebook, Notes};
use crate::store::collections;
use crate::store::{Store, StoreError};
use crate::task::{Run, Waiting};
use pending::{Pending, Sample};

pub use canaries::Sides;
pub use numbers::{Ended, Histogram, Numbers};
pub use read::{NodeHour, NodePoint, Point};

pub(crate) const COLLECTION: &str = collections::SERIES.name;

/// For how long the numbers are kept.
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

impl Store {
    /// Notes that a task was started at this time.
    pub(crate) fn note_start(&self, waiting: &Waiting, at: DateTime) {
        let waited = at.timestamp_millis().saturating_sub(waiting.since.timestamp_millis());
        let waited = Duration::from_millis(u64::try_from(waited).unwrap_or(0));
        let queue = self.metrics().queues.of(waiting.queue.0.bytes());
        queue.started.inc();
        queue.wait.observe_time(waited);
        let minute = minute_of(at);
        self.note::<Series>(|series| {
            series.pending.add(minute, waiting.queue, |numbers| numbers.waited.add(waited, 1));
        });
    }

    /// Notes that `tasks` tasks of `queue` have ended.
    pub(crate) fn note_ends(&self, queue: QueueId, status: Status, tasks: u64) {
        if tasks > 0 {
            let minute = minute_of(self.now());
            self.note::<Series>(|series| {
                series.pending.add(minute, queue, |numbers| numbers.ended.add(status, tasks));
            });
        }
    }

    /// Notes how long the plugin of a task ran that has ended.
    pub(crate) fn note_run(&self, queue: QueueId, ran: Duration) {
        let minute = minute_of(self.now());
        self.note::<Series>(|series| {
            series.pending.add(minute, queue, |numbers| numbers.ran.add(ran, 1));
        });
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
                let sample = Sample { running, load: stats.load, memory_available: stats.memory_available };
                series.pending.sample(minute, node, sample);
            }
        });
    }

    fn series_documents(&self) -> Collection<Document> {
        self.database().collection(COLLECTION)
    }
}

/// The beginning of the minute: milliseconds since 1970.
fn minute_of(at: DateTime) -> i64 {
    let at = at.timestamp_millis();
    at - at.rem_euclid(MINUTE_MS)
}
