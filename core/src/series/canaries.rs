//! How many attempts ended while a queue tries another version of its plugin, of either version. This is what decides whether a canary is
//! taken back ([`crate::canary`]), near the truth as all here: what is counted twice or lost is so for both versions.

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_operation::operation;

use super::Series;
use super::read::readable;
use crate::canary::Side;
use crate::model::{Canary, QueueId, Status, Trial, whole_number};
use crate::store::{Store, StoreError};

/// What became of attempts while a canary was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sides {
    /// Those of the version that is tried.
    pub canary: Side,
    /// All others.
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
        let count = |name: &str| {
            document.get(name).and_then(whole_number).and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
        };
        let side = |ended: &str, failed: &str| Side { ended: count(ended), failed: count(failed) };
        let [canary_ended, canary_failed, others_ended, others_failed] =
            Self::default().fields().map(|(name, _)| name);
        Self { canary: side(canary_ended, canary_failed), others: side(others_ended, others_failed) }
    }

    pub(super) fn add(&mut self, is_canary: bool, has_failed: bool) {
        let side = if is_canary { &mut self.canary } else { &mut self.others };
        side.ended = side.ended.saturating_add(1);
        side.failed = side.failed.saturating_add(u64::from(has_failed));
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (side, other) in [(&mut self.canary, other.canary), (&mut self.others, other.others)] {
            side.ended = side.ended.saturating_add(other.ended);
            side.failed = side.failed.saturating_add(other.failed);
        }
    }

    pub(super) fn statement(&self, queue: ObjectId, began: i64) -> Document {
        let increments: Document = self
            .fields()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), i64::try_from(count).unwrap_or(i64::MAX).into()))
            .collect();
        // It stays as long as anything is added to it.
        let update = doc! { "$inc": increments, "$currentDate": { "at": true } };
        doc! { "q": { "_id": id(queue, began) }, "u": update, "upsert": true }
    }
}

impl Store {
    /// Notes that an attempt has ended while its queue tried a version. What was to stop, or was never to run, says nothing of either version.
    pub(crate) fn note_trial(&self, queue: QueueId, trial: Option<Trial>, status: Status) {
        if let (Some(trial), Some(has_failed)) = (trial, has_failed(status)) {
            self.note::<Series>(|series| series.pending.add_attempt(queue, trial, has_failed));
        }
    }

    /// What became of attempts while a queue has this canary.
    #[operation(queue = %queue)]
    pub async fn canary_sides(&self, queue: QueueId, canary: &Canary) -> Result<Sides, StoreError> {
        let id = id(queue.0, canary.began.timestamp_millis());
        let found = readable(self.series_documents().find_one(doc! { "_id": id }).await)?.flatten();
        Ok(found.as_ref().map(Sides::of_document).unwrap_or_default())
    }
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

fn id(queue: ObjectId, began: i64) -> Document {
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
