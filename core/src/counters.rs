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

use std::time::Duration;

use bson::Document;
use bson::oid::ObjectId;
use disbatch_metrics::labels::Source;
use mongodb::Collection;
use mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};

use crate::model::{QueueId, Status};
use crate::notebook::{Notebook, Notes};
use crate::store::collections;
use crate::store::{Store, StoreError};
use deltas::Deltas;
use flush::Flush;

pub use totals::{AuditNote, Totals};

pub(crate) const COLLECTION: &str = collections::COUNTERS.name;

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
    book: Notebook<Moves>,
}

#[derive(Debug, Default)]
struct Moves {
    pending: Deltas,
    /// Sent, and not answered.
    sent: Option<Flush>,
    /// The number of the last flush.
    number: i64,
}

impl Notes for Moves {
    const EVERY: Duration = Duration::from_secs(1);

    fn book(store: &Store) -> &Notebook<Self> {
        &store.counters.book
    }

    fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.sent.is_none()
    }

    fn give_up(&mut self) {
        self.pending = Deltas::default();
        self.sent = None;
    }

    async fn flush(store: &Store) -> Result<(), StoreError> {
        store.flush_counters().await
    }
}

impl Counters {
    /// Those of a process that goes on until it is told to end.
    pub(crate) fn of_daemon() -> Self {
        Self::new(Notebook::of_daemon())
    }

    /// Those of a process that runs one task.
    pub(crate) fn of_runner() -> Self {
        Self::new(Notebook::of_runner())
    }

    fn new(book: Notebook<Moves>) -> Self {
        let process = ObjectId::new();
        let [.., last] = process.bytes();
        Self { process, part: format!("part{}", last % PARTS), book }
    }
}

impl Store {
    /// Notes that `tasks` tasks of `queue` have moved from one status to another; `None` is not to be there. Ends are
    /// also noted in [`crate::series`].
    pub(crate) fn moved(&self, queue: QueueId, from: Option<Status>, to: Option<Status>, tasks: u64) {
        self.measure_move(queue, (from, to), tasks);
        self.note::<Moves>(|moves| moves.pending.moved(queue.0, from, to, tasks));
        if let (Some(from), Some(to)) = (from, to)
            && !from.has_ended()
            && to.has_ended()
        {
            self.note_ends(queue, to, tasks);
        }
    }

    /// Notes that `tasks` new tasks of `queue` are there.
    pub(crate) fn submitted(&self, queue: QueueId, status: Option<Status>, tasks: u64, source: Source) {
        self.moved(queue, None, status, tasks);
        if tasks > 0 {
            self.metrics().queues.of(queue.0.bytes()).submitted.of(source).add(tasks);
        }
    }

    /// Notes that tasks may have moved of which nothing is known: an answer was lost, or a process has vanished. An audit
    /// comes soon.
    pub fn doubt_counters(&self) {
        self.note::<Moves>(|moves| moves.pending.doubt = true);
    }

    /// What is lost with the server is mended by the audit, so that nobody has to wait for a majority.
    fn counter_documents(&self) -> Collection<Document> {
        let one = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
        let options = CollectionOptions::builder().write_concern(one).build();
        self.database().collection_with_options(COLLECTION, options)
    }
}
