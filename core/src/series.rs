//! Numbers over time: how many tasks of each queue ended in each minute and how, how long they had waited, and how long
//! they ran; and what nodes were like. They are for pictures, and decide nothing.
//!
//! Who starts or ends a task notes it here. Each process adds up what it has noted in memory, and writes it at most
//! every [`EVERY`], and before it ends, with one unordered command that adds to the documents of the minutes. One that
//! has noted nothing writes nothing.
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
//!
//! **Minutes** are those of the clock of the process that notes: a task waits in the minute of its start, and runs and
//! ends in the minute of its end. What a clock puts into the future is shown when that minute has come.
//!
//! **Waiting** counts from the time at which a task could be claimed: its creation, its `run_at`, or the moment when it
//! was queued again after an end. A claim that is given back changes nothing about that. **Running** is the `duration`
//! of its `exit`: unknown where no plugin was started or its runner died. An attempt that is followed by another is no
//! end.
//!
//! **What these numbers do not know.** A write whose answer is lost is repeated, so it may be counted twice. A process that
//! is killed loses what it had not written, and so does one that cannot write for long: it keeps what fits into
//! [`pending::MOST`] documents. A runner that works without its DEN writes once, at its end. What Perl's programs do
//! is not noted. So the totals are near the truth and not equal to it; see [`crate::counters`] for numbers
//! that are.
//!
//! A user who may not write `series`, as those that Perl Disbatch made, notes nothing, and one who may not read it sees
//! zeros.

mod flush;
mod histogram;
mod nodes;
mod numbers;
mod pending;
mod read;
mod span;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bson::{DateTime, Document};
use mongodb::Collection;
use tokio::time::Instant;

use crate::model::{NodeName, QueueId, Status};
use crate::node::Stats;
use crate::store::Store;
use crate::task::Waiting;
use pending::{Pending, Sample};

pub use histogram::Histogram;
pub use nodes::NodePoint;
pub use numbers::{Ended, Numbers};
pub use read::Point;

/// The collection.
pub(crate) const COLLECTION: &str = "series";

/// For how long the numbers are kept.
pub const KEPT: Duration = Duration::from_secs(8 * 24 * 3600);

/// How often a process writes at most.
const EVERY: Duration = Duration::from_secs(5);

/// The shortest step.
const MINUTE_MS: i64 = 60_000;

/// What one process has noted.
#[derive(Debug)]
pub(crate) struct Series {
    /// Whether it goes on after a task, so that it can repeat a write.
    goes_on: bool,
    state: Mutex<State>,
    flushing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    pending: Pending,
    /// Somebody will write within seconds.
    scheduled: bool,
    /// Until when nothing is noted, as this user may not write it.
    silent_until: Option<Instant>,
    /// The minute that a node was last noted for.
    sampled: Option<(NodeName, i64)>,
}

impl Series {
    /// Those of a process that goes on until it is told to end.
    pub(crate) fn of_daemon() -> Self {
        Self { goes_on: true, state: Mutex::default(), flushing: tokio::sync::Mutex::default() }
    }

    /// Those of a process that runs one task.
    pub(crate) fn of_runner() -> Self {
        Self { goes_on: false, ..Self::of_daemon() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Notes that a task was started at this time.
    pub(crate) fn note_start(&self, waiting: &Waiting, at: DateTime) {
        let waited = at.timestamp_millis().saturating_sub(waiting.since.timestamp_millis());
        let waited = Duration::from_millis(u64::try_from(waited).unwrap_or(0));
        let minute = minute_of(at);
        self.note_series(|state| state.pending.of_queue(minute, waiting.queue).waited.add(waited, 1));
    }

    /// Notes that `tasks` tasks of `queue` have ended.
    pub(crate) fn note_ends(&self, queue: QueueId, status: Status, tasks: u64) {
        if tasks > 0 {
            let minute = minute_of(self.now());
            self.note_series(|state| state.pending.of_queue(minute, queue).ended.add(status, tasks));
        }
    }

    /// Notes how long the plugin of a task ran that has ended.
    pub(crate) fn note_run(&self, queue: QueueId, ran: Duration) {
        let minute = minute_of(self.now());
        self.note_series(|state| state.pending.of_queue(minute, queue).ran.add(ran, 1));
    }

    /// Notes what a node is like, once in each minute.
    pub(crate) fn note_node(&self, node: &NodeName, running: usize, stats: &Stats) {
        let minute = minute_of(self.now());
        self.note_series(|state| {
            if state.sampled.as_ref().is_none_or(|(name, at)| *at != minute || name != node) {
                state.sampled = Some((node.clone(), minute));
                let sample = Sample { running, load: stats.load, memory_available: stats.memory_available };
                state.pending.of_node(minute, node, sample);
            }
        });
    }

    fn note_series(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.series.state();
        if state.silent_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        change(&mut state);
        // A runner writes once, at its end.
        if !self.series.goes_on || state.scheduled || state.pending.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        state.scheduled = true;
        drop(state);
        runtime.spawn(flush::follow(self.clone()));
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
