//! Writing what has been noted: see the invariant in [`super`].

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Bson, Document, doc};
use tokio::time::Instant;

use super::Moves;
use super::deltas::Deltas;
use crate::model::whole_number;
use crate::store::{Store, StoreError};

/// Moves that could not be written for so long may have been taken for drift, so that an audit has to come.
const LATE: Duration = Duration::from_secs(2);

/// A flush is given up before its number may be forgotten (see [`Store::forget_flushes`]).
const GIVEN_UP: Duration = Duration::from_secs(1_800);

/// How often a part is made that another process makes at the same moment.
const TRIES: usize = 4;

/// What is written at once, and again as it is when the answer was lost.
#[derive(Debug, Clone)]
pub(super) struct Flush {
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
                Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
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

    /// Whether the part of this process knows its flush with this number.
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
    pub(super) async fn forget_flushes(&self) -> Result<(), StoreError> {
        let hour_ago = doc! { "$subtract": ["$$NOW", 3_600_000_i64] };
        let recent = doc! { "$filter": {
            "input": { "$objectToArray": { "$ifNull": ["$last", {}] } },
            "cond": { "$gte": ["$$this.v.at", hour_ago] },
        } };
        let update = vec![doc! { "$set": { "last": { "$arrayToObject": recent } } }];
        let parts = doc! { "_id": { "$ne": Bson::from(super::BASE) } };
        self.counter_documents().update_many(parts, update).await?;
        Ok(())
    }
}
