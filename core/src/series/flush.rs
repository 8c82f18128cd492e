//! Writing what has been noted.

use bson::{Document, doc};
use disbatch_operation::operation;
use tokio::time::Instant;

use super::pending::Pending;
use super::{COLLECTION, Series};
use crate::notebook::SILENCE;
use crate::store::{Store, StoreError};

/// So many documents are in one command at most.
const AT_ONCE: usize = 1_000;

impl Store {
    /// Writes all that this process has noted and not written: counters, numbers over time, and what groups have had. A
    /// process that ends calls this last; others need not.
    ///
    /// # Errors
    /// As of [`Store::flush_counters`], [`Store::flush_series`] and [`Store::flush_groups`]: the first of them if several
    /// fail.
    #[operation]
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (counters, series, groups) =
            futures::join!(self.flush_counters(), self.flush_series(), self.flush_groups());
        counters.and(series).and(groups)
    }

    /// Writes the numbers over time that this process has noted and not written.
    ///
    /// # Errors
    /// The database cannot be reached: what it has not acknowledged is kept and written later, unless this process runs one
    /// task. Or it does not take them: they are lost, which is logged.
    #[operation]
    pub async fn flush_series(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.series.one_at_a_time().await;
        let mut left = self.series.with(|series| std::mem::take(&mut series.pending));
        self.lost(std::mem::take(&mut left.forgotten), "they could not be written for too long");
        let Err(error) = in_parts(&mut left, |statements| self.write_series(statements)).await else {
            return Ok(());
        };
        if error.is_forbidden() {
            tracing::info!(
                %error,
                "numbers over time are not kept by this process; `disbatch create-users` gives the right to"
            );
            self.series.silence();
            return Ok(());
        }
        // A runner does not get another chance.
        if self.series.goes_on() && may_pass(&error) {
            self.series.with(|series| series.pending.put_back(left));
        } else {
            self.lost(left.len(), &error.to_string());
        }
        Err(error)
    }

    async fn write_series(&self, statements: Vec<Document>) -> Result<(), StoreError> {
        let command = doc! {
            "update": COLLECTION, "updates": statements, "ordered": false, "writeConcern": { "w": 1 },
        };
        let answer = self.database().run_command(command).await?;
        if let Ok([first, more @ ..]) = answer.get_array("writeErrors").map(Vec::as_slice) {
            self.lost(1 + more.len(), &first.to_string());
        }
        Ok(())
    }

    /// Says that numbers are lost, once in a while.
    fn lost(&self, documents: usize, reason: &str) {
        if documents > 0 && self.series.with(|series| series.may_warn(Instant::now())) {
            tracing::warn!(documents, reason, "some numbers over time are lost");
        }
    }
}

impl Series {
    /// Whether to say that something is lost: not again within [`SILENCE`].
    fn may_warn(&mut self, now: Instant) -> bool {
        let may = self.warned_until.is_none_or(|until| now >= until);
        if may {
            self.warned_until = Some(now + SILENCE);
        }
        may
    }
}

/// Writes what is left, a part after the other. What could not be written stays, with the part of which nobody knows
/// whether it was written.
async fn in_parts<F: Future<Output = Result<(), StoreError>>>(
    left: &mut Pending,
    write: impl Fn(Vec<Document>) -> F,
) -> Result<(), StoreError> {
    while !left.is_empty() {
        let part = left.take(AT_ONCE);
        let written = write(part.statements()).await;
        if written.is_err() {
            left.put_back(part);
            return written;
        }
    }
    Ok(())
}

/// Whether the same may be written later.
fn may_pass(error: &StoreError) -> bool {
    error.is_transient() || error.write_failure().is_some_and(|failure| failure.is_refusal())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use bson::oid::ObjectId;

    use super::*;
    use crate::model::{QueueId, Status};

    #[tokio::test]
    async fn what_was_acknowledged_is_not_written_again() {
        let mut left = Pending::default();
        for minute in 0..1_200 {
            let queue = QueueId(ObjectId::from_bytes([1; 12]));
            left.add(minute * 60_000, queue, |numbers| numbers.ended.add(Status::Succeeded, 1));
        }
        let all = left.statements();
        assert_eq!(all.len(), 2_400);
        let sent: RefCell<Vec<Vec<Document>>> = RefCell::default();
        let write = |statements: Vec<Document>| {
            sent.borrow_mut().push(statements);
            let has_answer = sent.borrow().len() != 2;
            async move { if has_answer { Ok(()) } else { Err(StoreError::Unconfirmed { reason: "away".into() }) } }
        };
        in_parts(&mut left, write).await.unwrap_err();
        assert_eq!(left.statements(), all[AT_ONCE..], "the part in doubt, and what was not sent");
        in_parts(&mut left, write).await.unwrap();
        assert!(left.is_empty());
        let parts: Vec<usize> = sent.borrow().iter().map(Vec::len).collect();
        assert_eq!(parts, [1_000, 1_000, 1_000, 400]);
        assert_eq!(sent.borrow()[0], all[..AT_ONCE]);
        assert_eq!(sent.borrow()[2..].concat(), all[AT_ONCE..]);
    }

    #[test]
    fn losses_are_told_once_in_a_while() {
        let (mut series, now) = (Series::default(), Instant::now());
        assert!(series.may_warn(now));
        assert!(!series.may_warn(now + SILENCE / 2));
        assert!(series.may_warn(now + SILENCE));
    }
}
