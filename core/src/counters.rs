//! Counters: how many tasks each queue has in each status, known without counting them.
//!
//! Who moves a task notes it here: from which status to which. Each process adds up its moves in memory and writes
//! them at most once a second, and before it ends, as one update. One that has moved nothing writes nothing. The
//! statuses -1 and 0 are left out: those tasks are few, and are always counted themselves.
//!
//! **Documents.** `counters` has four parts, which processes choose from at random, so that they seldom meet, and
//! a `base`. Each has, for each queue, a number for each status (`q.QUEUE.n.STATUS`) and how many tasks have been
//! moved at all (`q.QUEUE.m`, parts only). A counter is the sum over all five. They are read at once, as one find.
//!
//! **Invariant.** A flush is counted once, however often it is sent. It has a number, and the update has the
//! condition that the part has seen no flush of this process with that number or a later one; the same update
//! notes the number. A flush whose answer was lost is sent again as it was before anything newer is. Runners that live for
//! one task send theirs once only, and leave the repetition to the driver, which MongoDB tells from the first time.
//!
//! **What counters do not know.** Moves of a process that was killed within the second before it would have
//! written them; moves of other programs, Perl Disbatch for one; and documents that are written by hand. Counters are
//! therefore only shown where a count would be long (see [`count`]), and an audit mends them (see [`audit`]). An
//! operation that may have moved tasks without an answer asks for one ([`Store::doubt_counters`]).

pub mod audit;
pub mod count;
mod deltas;
mod flush;
mod totals;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::Document;
use bson::oid::ObjectId;
use mongodb::Collection;
use mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};
use tokio::time::Instant;

use crate::model::{QueueId, Status};
use crate::store::Store;
use deltas::Deltas;
use flush::Flush;

pub use totals::{AuditNote, Totals};

/// The collection.
pub(crate) const COLLECTION: &str = "counters";

/// So many documents share the moves.
const PARTS: u8 = 4;

/// The document that audits write.
const BASE: &str = "base";

/// The moves of one process.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Tells its flushes from those of others.
    process: ObjectId,
    /// The part that it writes.
    part: String,
    /// Whether it goes on after a task, so that it can repeat a flush.
    goes_on: bool,
    state: Mutex<State>,
    flushing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    pending: Deltas,
    /// Sent, and not answered.
    sent: Option<Flush>,
    /// The number of the last flush.
    number: i64,
    /// Somebody will flush within a second.
    scheduled: bool,
    /// Until when nothing is noted, as this user may not write counters.
    silent_until: Option<Instant>,
}

impl Counters {
    /// Those of a process that goes on until it is told to end.
    pub(crate) fn of_daemon() -> Self {
        Self::new(true)
    }

    /// Those of a process that runs one task.
    pub(crate) fn of_runner() -> Self {
        Self::new(false)
    }

    fn new(goes_on: bool) -> Self {
        let process = ObjectId::new();
        let [.., last] = process.bytes();
        Self {
            process,
            part: format!("part{}", last % PARTS),
            goes_on,
            state: Mutex::default(),
            flushing: tokio::sync::Mutex::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Notes that `tasks` tasks of `queue` have moved from one status to another; `None` is not to be there. Ends are
    /// also noted in [`crate::series`].
    pub(crate) fn moved(&self, queue: QueueId, from: Option<Status>, to: Option<Status>, tasks: u64) {
        self.note(|deltas| deltas.moved(queue.0, from, to, tasks));
        if let (Some(from), Some(to)) = (from, to)
            && !from.has_ended()
            && to.has_ended()
        {
            self.note_ends(queue, to, tasks);
        }
    }

    /// Notes that tasks may have moved of which nothing is known: an answer was lost, or a process has vanished. An audit
    /// comes soon.
    pub fn doubt_counters(&self) {
        self.note(|deltas| deltas.doubt = true);
    }

    fn note(&self, change: impl FnOnce(&mut Deltas)) {
        let mut state = self.counters.state();
        if state.silent_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        change(&mut state.pending);
        // A runner writes once, at its end.
        if !self.counters.goes_on || state.scheduled || state.pending.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        state.scheduled = true;
        drop(state);
        runtime.spawn(flush::follow(self.clone()));
    }

    /// What is lost with the server is mended by the audit, so that nobody has to wait for a majority.
    fn counter_documents(&self) -> Collection<Document> {
        let one = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
        let options = CollectionOptions::builder().write_concern(one).build();
        self.database().collection_with_options(COLLECTION, options)
    }
}
