//! Writing what has been noted: see the invariant in [`super`].

use std::time::Duration;

use bson::{Bson, Document, doc};
use tokio::time::Instant;

use super::Counters;
use super::deltas::Deltas;
use crate::model::whole_number;
use crate::store::{Store, StoreError};

/// How often a process writes at most.
const EVERY: Duration = Duration::from_secs(1);

/// Moves that could not be written for so long may have been taken for drift, so that an audit has to come.
const LATE: Duration = Duration::from_secs(2);

/// How long a user without the right to write counters notes nothing.
const SILENCE: Duration = Duration::from_secs(600);

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

/// Flushes until there is nothing left to write.
pub(super) async fn follow(store: Store) {
    let mut scheduled = Scheduled { store: store.clone(), ended: false };
    while !scheduled.ended {
        tokio::time::sleep(EVERY).await;
        match store.flush_counters().await {
            Ok(()) => scheduled.look(),
            Err(error) => tracing::debug!(%error, "cannot write counters yet"),
        }
    }
}

/// Lets another take over when the one that was to flush is broken off.
struct Scheduled {
    store: Store,
    ended: bool,
}

impl Scheduled {
    /// Under one lock, so that what is noted from now on is flushed by the next one.
    fn look(&mut self) {
        let mut state = self.store.counters.state();
        self.ended = state.pending.is_empty() && state.sent.is_none();
        state.scheduled = !self.ended;
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        if !self.ended {
            self.store.counters.state().scheduled = false;
        }
    }
}

impl Counters {
    fn silence(&self) {
        let mut state = self.state();
        state.pending = Deltas::default();
        state.sent = None;
        state.silent_until = Some(Instant::now() + SILENCE);
    }

    /// Numbers what is to be written next, if there is anything.
    fn send(&self) -> Option<Flush> {
        let mut state = self.state();
        if state.pending.is_empty() {
            return None;
        }
        state.number += 1;
        let deltas = std::mem::take(&mut state.pending);
        let flush = Flush { number: state.number, deltas, since: Instant::now() };
        state.sent = Some(flush.clone());
        Some(flush)
    }
}

impl Store {
    /// Writes what this process has noted and not written. A process that ends calls this last; others need not.
    ///
    /// # Errors
    /// The database cannot be reached: what was noted is kept, and written later.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn flush_counters(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.counters.flushing.lock().await;
        loop {
            let unanswered = self.counters.state().sent.clone();
            let flush = match unanswered {
                Some(flush) => flush,
                None => match self.counters.send() {
                    Some(flush) => flush,
                    None => return Ok(()),
                },
            };
            if flush.since.elapsed() > GIVEN_UP {
                let mut state = self.counters.state();
                state.sent = None;
                state.pending.doubt = true;
                continue;
            }
            match self.write_flush(&flush).await {
                Ok(()) => self.counters.state().sent = None,
                Err(error) if error.is_forbidden() => {
                    tracing::info!(
                        %error,
                        "counters are not kept by this process; `disbatch create-users` gives the right to"
                    );
                    self.counters.silence();
                    return Ok(());
                }
                Err(error) => {
                    // Nobody would know whether it was written.
                    if !self.counters.goes_on {
                        self.counters.state().sent = None;
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn write_flush(&self, flush: &Flush) -> Result<(), StoreError> {
        let counters = &self.counters;
        let mut part = doc! { "_id": &counters.part };
        let mut update = Document::new();
        let mut now = Document::new();
        if counters.goes_on {
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
        Ok(counters.goes_on && last.and_then(|last| last.get("n")).and_then(whole_number) >= Some(number))
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
