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

use std::collections::BTreeMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_metrics::labels::Source;
use disbatch_operation::operation;
use mongodb::Collection;
use mongodb::options::{CollectionOptions, WriteConcern};
use tokio::time::Instant;

pub use count::{AuditNote, Totals};

use crate::model::{QueueId, Status, whole_number};
use crate::notebook::{Notebook, Notes};
use crate::store::collections::COUNTERS;
use crate::store::{Store, StoreError, integer};

/// So many documents share the moves.
const PARTS: u8 = 4;

/// The document that audits write.
const BASE: &str = "base";

/// Statuses beyond these count as these, so that plugins that invent them do not fill the counters.
const FIRST: i64 = -16;

const LAST: i64 = 256;

/// Moves that could not be written for so long may have been taken for drift, so that an audit has to come.
const LATE: Duration = Duration::from_secs(2);

/// A flush is given up before its number may be forgotten (see [`Store::forget_flushes`]).
const GIVEN_UP: Duration = Duration::from_secs(1_800);

/// How often a part is made that another process makes at the same moment.
const TRIES: usize = 4;

/// The moves of one process.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Tells its flushes from those of others.
    process: ObjectId,
    part: String,
    book: Notebook<Moves>,
}

#[derive(Debug, Default)]
pub(crate) struct Moves {
    pending: Deltas,
    /// Sent, and not answered.
    sent: Option<Flush>,
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
    pub(crate) fn new(book: Notebook<Moves>) -> Self {
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

    /// Notes that a task has left the queue and the status that `before` has, if it has them.
    pub(crate) fn moved_from(&self, before: &Document, to: Option<Status>) {
        if let (Ok(queue), Some(from)) = (before.get_object_id("queue"), Status::stored(before)) {
            self.moved(QueueId(queue), Some(from), to, 1);
        }
    }

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
        let options = CollectionOptions::builder().write_concern(WriteConcern::nodes(1)).build();
        self.database().collection_with_options(COUNTERS.name, options)
    }
}

/// The status whose counter a task is in. `None`: none is kept.
fn counter_of(status: i64) -> Option<i64> {
    (!matches!(status, -1 | 0)).then(|| status.clamp(FIRST, LAST))
}

/// Matches the statuses of a counter.
fn statuses_of(counter: i64) -> Document {
    match counter {
        FIRST => doc! { "$lte": FIRST },
        LAST => doc! { "$gte": LAST },
        status => doc! { "$eq": status },
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Deltas {
    queues: BTreeMap<ObjectId, OfQueue>,
    /// Something may have moved that is not among them.
    doubt: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OfQueue {
    net: BTreeMap<i64, i64>,
    moves: i64,
}

impl Deltas {
    fn moved(&mut self, queue: ObjectId, from: Option<Status>, to: Option<Status>, tasks: u64) {
        let counter = |status: Option<Status>| status.and_then(|status| counter_of(status.code()));
        let (from, to) = (counter(from), counter(to));
        if tasks == 0 || from == to {
            return;
        }
        let tasks = integer(tasks);
        let of_queue = self.queues.entry(queue).or_default();
        of_queue.moves += tasks;
        for (counter, change) in [(from, -tasks), (to, tasks)] {
            if let Some(counter) = counter {
                *of_queue.net.entry(counter).or_default() += change;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty() && !self.doubt
    }

    fn increments(&self) -> Document {
        let mut fields = Document::new();
        for (queue, of_queue) in &self.queues {
            let queue = queue.to_hex();
            fields.insert(format!("q.{queue}.m"), of_queue.moves);
            for (counter, change) in of_queue.net.iter().filter(|(_, change)| **change != 0) {
                fields.insert(format!("q.{queue}.n.{counter}"), *change);
            }
        }
        fields
    }
}

/// What is written at once, and again as it is when the answer was lost.
#[derive(Debug, Clone)]
struct Flush {
    number: i64,
    deltas: Deltas,
    since: Instant,
}

impl Moves {
    /// What was sent without an answer; else, with a number, what is to be written next, if there is anything.
    fn send(&mut self) -> Option<Flush> {
        if self.sent.is_none() && !self.pending.is_empty() {
            self.number += 1;
            let deltas = std::mem::take(&mut self.pending);
            self.sent = Some(Flush { number: self.number, deltas, since: Instant::now() });
        }
        self.sent.clone()
    }
}

impl Store {
    /// Writes what this process has noted and not written. A process that ends calls this last; others need not.
    ///
    /// # Errors
    /// The database cannot be reached: what was noted is kept, and written later.
    #[operation]
    pub async fn flush_counters(&self) -> Result<(), StoreError> {
        let book = &self.counters.book;
        let _one_at_a_time = book.one_at_a_time().await;
        while let Some(flush) = book.with(Moves::send) {
            if flush.since.elapsed() > GIVEN_UP {
                book.with(|moves| {
                    moves.sent = None;
                    moves.pending.doubt = true;
                });
                continue;
            }
            match self.write_flush(&flush).await {
                Ok(()) => book.with(|moves| moves.sent = None),
                Err(error) if error.is_forbidden() => {
                    tracing::info!(
                        %error,
                        "counters are not kept by this process; `disbatch create-users` gives the right to"
                    );
                    book.silence();
                    return Ok(());
                }
                Err(error) => {
                    // Nobody would know whether it was written.
                    if !book.goes_on() {
                        book.with(|moves| moves.sent = None);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn write_flush(&self, flush: &Flush) -> Result<(), StoreError> {
        let counters = &self.counters;
        let mut part = doc! { "_id": &counters.part };
        let mut update = Document::new();
        let mut now = Document::new();
        if counters.book.goes_on() {
            let last = format!("last.{}", counters.process.to_hex());
            part.insert(format!("{last}.n"), doc! { "$not": { "$gte": flush.number } });
            update.insert("$set", doc! { format!("{last}.n"): flush.number });
            now.insert(format!("{last}.at"), true);
        }
        if flush.deltas.doubt || flush.since.elapsed() > LATE {
            now.insert("doubt", true);
        }
        for (operator, fields) in [("$inc", flush.deltas.increments()), ("$currentDate", now)] {
            if !fields.is_empty() {
                update.insert(operator, fields);
            }
        }
        for _ in 0..TRIES {
            let written =
                self.counter_documents().update_one(part.clone(), update.clone()).upsert(true).await;
            match written.map_err(StoreError::from) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_duplicate_key() => {
                    // The part has seen it, or was made by another process at this moment.
                    if self.has_seen(flush.number).await? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn has_seen(&self, number: i64) -> Result<bool, StoreError> {
        let counters = &self.counters;
        let process = counters.process.to_hex();
        let only = doc! { format!("last.{process}.n"): 1 };
        let part = self.counter_documents().find_one(doc! { "_id": &counters.part }).projection(only).await?;
        let last = part.as_ref().and_then(|part| part.get_document("last").ok()?.get_document(&process).ok());
        Ok(counters.book.goes_on()
            && last.and_then(|last| last.get("n")).and_then(whole_number) >= Some(number))
    }

    /// Forgets the numbers of processes that have not written for an hour, as they have ended or repeat nothing.
    async fn forget_flushes(&self) -> Result<(), StoreError> {
        let hour_ago = doc! { "$subtract": ["$$NOW", 3_600_000_i64] };
        let recent = doc! { "$filter": {
            "input": { "$objectToArray": { "$ifNull": ["$last", {}] } },
            "cond": { "$gte": ["$$this.v.at", hour_ago] },
        } };
        let update = vec![doc! { "$set": { "last": { "$arrayToObject": recent } } }];
        let parts = doc! { "_id": { "$ne": Bson::from(BASE) } };
        self.counter_documents().update_many(parts, update).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue() -> ObjectId {
        ObjectId::from_bytes([7; 12])
    }

    #[test]
    fn moves_add_up_to_what_is_left_of_them() {
        let mut deltas = Deltas::default();
        deltas.moved(queue(), None, Some(Status::Queued), 5);
        deltas.moved(queue(), Some(Status::Queued), Some(Status::Claimed), 5);
        deltas.moved(queue(), Some(Status::Claimed), Some(Status::Running), 5);
        deltas.moved(queue(), Some(Status::Running), Some(Status::Succeeded), 4);
        let hex = queue().to_hex();
        let expected = doc! { format!("q.{hex}.m"): 14_i64, format!("q.{hex}.n.1"): 4_i64 };
        assert_eq!(deltas.increments(), expected, "claims and starts of running tasks are not counted");
    }

    proptest! {
        /// What is in counters after some moves is what is there: no more than has moved.
        #[test]
        fn no_more_is_counted_than_has_moved(
            moves in proptest::collection::vec((-20_i64..300, -20_i64..300, 1_u64..5), 0..40),
        ) {
            let mut whole = Deltas::default();
            for (from, to, tasks) in moves {
                let (from, to) = (Some(Status::from_code(from)), Some(Status::from_code(to)));
                whole.moved(queue(), from, to, tasks);
            }
            let net: i64 = whole.queues.values().flat_map(|of| of.net.values()).sum();
            let moves: i64 = whole.queues.values().map(|of| of.moves).sum();
            prop_assert!(net.abs() <= moves);
        }

        #[test]
        fn every_status_has_one_counter_but_those_that_run(status in any::<i64>()) {
            prop_assert_eq!(counter_of(status).is_none(), status == -1 || status == 0);
            if let Some(counter) = counter_of(status) {
                prop_assert_eq!(counter_of(counter), Some(counter));
                prop_assert_eq!(counter <= -2, status <= -2, "a counter is of one phase");
            }
        }
    }
}
