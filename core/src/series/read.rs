//! Reading the numbers of queues, for charts.

use disbatch_operation::operation;
use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, DateTime, RawDocument, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::Collection;

use super::numbers::{ENDED, Ended, Numbers};
use super::pending::id_of_queue;
use super::span::Span;
use crate::model::{QueueId, whole_number};
use crate::store::{Store, StoreError};

/// How far back [`last_hour`] looks.
const HOUR: Duration = Duration::from_secs(59 * 60);

/// What happened in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Its beginning.
    pub at: DateTime,
    pub numbers: Numbers,
}

impl Store {
    /// What happened in `queue`, or in all queues together, in each `step` since the one that `since` is in, up to now, in
    /// order. A step in which nothing happened is there too, with zeros. Steps are whole minutes and begin at multiples of their
    /// length since 1970. The first is at the earliest the one that [`super::KEPT`] ago is in.
    ///
    /// One query, which reads a document for each minute at most: 11,521 of them. They are added up here, as that takes
    /// a tenth of the time that the server would need to add up all their fields.
    #[operation]
    pub async fn series(
        &self,
        queue: Option<QueueId>,
        since: DateTime,
        step: Duration,
    ) -> Result<Vec<Point>, StoreError> {
        let span = Span::new(since, self.now(), step);
        let id = |minute| id_of_queue(queue.map(|queue| queue.0), minute);
        let within = doc! { "_id": { "$gte": id(span.from()), "$lt": id(span.until()) } };
        let found = self.raw_series().find(within).projection(doc! { "_id": 0 }).await;
        let mut points = empty(span);
        if let Some(mut minutes) = readable(found)? {
            while let Some(minute) = minutes.try_next().await? {
                add_minute(&mut points, span, &minute);
            }
        }
        Ok(points)
    }

    /// How many tasks of each queue ended in each of the last 60 minutes, the one that it is included, in one query. A
    /// queue of which none has ended is left out.
    #[operation]
    pub async fn last_hour(&self) -> Result<HashMap<QueueId, Vec<Ended>>, StoreError> {
        let span = last_hour(self.now());
        let (from, until) = (DateTime::from_millis(span.from()), DateTime::from_millis(span.until()));
        let within = doc! { "at": { "$gte": from, "$lt": until }, "_id.queue": { "$type": "objectId" } };
        let mut only = doc! { "at": 1 };
        only.extend(ENDED.map(|name| (name.to_owned(), 1.into())));
        let found = self.raw_series().find(within).projection(only).await;
        let mut queues = HashMap::new();
        if let Some(mut minutes) = readable(found)? {
            while let Some(minute) = minutes.try_next().await? {
                add_ends(&mut queues, span, &minute);
            }
        }
        Ok(queues)
    }

    /// Documents that are looked through once need not be taken apart.
    pub(super) fn raw_series(&self) -> Collection<RawDocumentBuf> {
        self.series_documents().clone_with_type()
    }
}

/// The last 60 minutes, the one that it is included.
pub(super) fn last_hour(now: DateTime) -> Span {
    let since = now.timestamp_millis().saturating_sub(i64::try_from(HOUR.as_millis()).unwrap_or(0));
    Span::new(DateTime::from_millis(since), now, Duration::ZERO)
}

/// Nothing, where this user may not read it.
pub(super) fn readable<T>(found: mongodb::error::Result<T>) -> Result<Option<T>, StoreError> {
    match found.map_err(StoreError::from) {
        Err(error) if error.is_forbidden() => {
            tracing::debug!(%error, "numbers over time are not shown");
            Ok(None)
        }
        found => found.map(Some),
    }
}

fn empty(span: Span) -> Vec<Point> {
    span.beginnings().map(|at| Point { at, numbers: Numbers::default() }).collect()
}

fn add_minute(points: &mut [Point], span: Span, minute: &RawDocument) {
    if let Some(point) = step_of(span, minute).and_then(|step| points.get_mut(step)) {
        numbers_in(minute).for_each(|(name, number)| point.numbers.add_field(name, number));
    }
}

fn add_ends(queues: &mut HashMap<QueueId, Vec<Ended>>, span: Span, minute: &RawDocument) {
    let mut ended = Ended::default();
    numbers_in(minute).for_each(|(name, number)| ended.add_field(name, number));
    let queue = minute.get_document("_id").and_then(|id| id.get_object_id("queue"));
    if let (Ok(queue), Some(step), true) = (queue, step_of(span, minute), ended.total() > 0) {
        let steps = queues.entry(QueueId(queue));
        let steps = steps.or_insert_with(|| vec![Ended::default(); span.beginnings().count()]);
        if let Some(known) = steps.get_mut(step) {
            known.merge(ended);
        }
    }
}

pub(super) fn step_of(span: Span, minute: &RawDocument) -> Option<usize> {
    span.step_of(minute.get_datetime("at").ok()?)
}

/// The fields that are whole numbers, and not below zero.
pub(super) fn numbers_in(minute: &RawDocument) -> impl Iterator<Item = (&str, u64)> {
    minute.iter().filter_map(|field| {
        let (name, value) = field.ok()?;
        let number = whole_number(&Bson::try_from(value).ok()?)?;
        Some((name.as_str(), u64::try_from(number).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use bson::Document;
    use bson::oid::ObjectId;
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_795_000_000_000;

    fn span(minutes: i64, step: u64) -> Span {
        let since = DateTime::from_millis(NOW - minutes * 60_000);
        Span::new(since, DateTime::from_millis(NOW), Duration::from_secs(60 * step))
    }

    fn points(span: Span, minutes: &[Document]) -> Vec<Point> {
        let mut points = empty(span);
        for minute in minutes {
            add_minute(&mut points, span, &RawDocumentBuf::try_from(minute).unwrap());
        }
        points
    }

    fn minute(queue: Bson, back: i64, fields: Document) -> Document {
        let at = DateTime::from_millis((NOW / 60_000 - back) * 60_000);
        let mut document = doc! { "_id": { "queue": queue, "at": at }, "at": at };
        document.extend(fields);
        document
    }

    #[test]
    fn a_stretch_without_anything_has_points_all_the_same() {
        let found = [
            minute(Bson::Null, 2, doc! { "succeeded": 3_i64, "w5": 2_i64, "wait_ms": 9_i64 }),
            // By a clock that is ahead, and by an odd hand.
            minute(Bson::Null, -1, doc! { "succeeded": 100_i64 }),
            minute(Bson::Null, 0, doc! { "failed": 1.0, "other": "many", "r70": 2, "run_ms": -5 }),
            doc! { "at": "yesterday", "failed": 7 },
        ];
        let points = points(span(3, 1), &found);
        let counts: Vec<(u64, u64, u64)> = points
            .iter()
            .map(|Point { numbers, .. }| (numbers.ended.total(), numbers.waited.count(), numbers.ran.count()))
            .collect();
        assert_eq!(counts, [(0, 0, 0), (3, 2, 0), (0, 0, 0), (1, 0, 2)]);
        assert_eq!(points[1].numbers.waited.mean(), Some(Duration::from_millis(4)));
    }

    #[test]
    fn of_the_last_hour_each_queue_has_its_own() {
        let (one, idle) = (ObjectId::from_bytes([1; 12]), ObjectId::from_bytes([2; 12]));
        let found = [
            minute(one.into(), 59, doc! { "succeeded": 3_i64 }),
            minute(one.into(), 60, doc! { "succeeded": 50_i64 }),
            minute(one.into(), 0, doc! { "failed": 2_i64, "other": 1_i64, "w1": 5_i64 }),
            minute(idle.into(), 0, doc! { "w1": 5_i64 }),
            minute(Bson::Null, 0, doc! { "failed": 2_i64 }),
        ];
        let mut ends = HashMap::new();
        for minute in &found {
            add_ends(&mut ends, span(59, 1), &RawDocumentBuf::try_from(minute).unwrap());
        }
        assert_eq!(ends.len(), 1);
        let of_one = &ends[&QueueId(one)];
        assert_eq!((of_one.len(), of_one[0].succeeded), (60, 3));
        assert_eq!(of_one[59], Ended { succeeded: 0, failed: 2, other: 1 });
        assert_eq!(of_one[1..59], [Ended::default(); 58]);
    }

    proptest! {
        /// However long the steps are, they have the same in all.
        #[test]
        fn longer_steps_have_the_sums_of_shorter_ones(
            minutes in prop::collection::vec((0_i64..300, 0_i64..5, 0_u8..64), 0..50), step in 1_u64..100,
        ) {
            let found: Vec<Document> = minutes
                .iter()
                .map(|(back, tasks, bucket)| {
                    minute(Bson::Null, *back, doc! { "failed": tasks, format!("r{bucket}"): tasks, "run_ms": tasks })
                })
                .collect();
            let all = |points: Vec<Point>| {
                let mut all = Numbers::default();
                points.iter().for_each(|point| all.merge(&point.numbers));
                all
            };
            let (short, long) = (span(299, 1), span(299, step));
            prop_assert_eq!(all(points(short, &found)), all(points(long, &found)));
        }
    }
}
