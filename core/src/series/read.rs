//! Reading the numbers of queues and nodes, for charts: of a stretch of time, in steps.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;
use mongodb::Collection;

use super::numbers::{ENDED, Ended, Numbers};
use super::pending::{OF_QUEUES, id_of_node, id_of_queue};
use super::{KEPT, MINUTE_MS};
use crate::model::{NodeName, QueueId, number, whole_number};
use crate::store::{Store, StoreError, collect, integer, millis};

/// How far back [`last_hour`] looks.
const HOUR: Duration = Duration::from_secs(59 * 60);

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
        let within = doc! { "_id": { "$gte": id(span.from), "$lt": id(span.until()) } };
        let mut points = empty(span);
        self.each_minute(within, doc! { "_id": 0 }, |minute| add_minute(&mut points, span, minute)).await?;
        Ok(points)
    }

    /// How many tasks of each queue ended in each of the last 60 minutes, the one that it is included, in one query. A
    /// queue of which none has ended is left out.
    #[operation]
    pub async fn last_hour(&self) -> Result<HashMap<QueueId, Vec<Ended>>, StoreError> {
        let span = last_hour(self.now());
        let (from, until) = (DateTime::from_millis(span.from), DateTime::from_millis(span.until()));
        let within = doc! { "at": { "$gte": from, "$lt": until }, "_id.queue": { "$type": "objectId" } };
        let mut only = doc! { "at": 1 };
        only.extend(ENDED.map(|name| (name.to_owned(), 1.into())));
        let mut queues = HashMap::new();
        self.each_minute(within, only, |minute| add_ends(&mut queues, span, minute)).await?;
        Ok(queues)
    }

    /// Has these fields of minutes looked at. They are looked through once, so they need not be taken apart.
    async fn each_minute(
        &self,
        these: Document,
        only: Document,
        mut look: impl FnMut(&RawDocument),
    ) -> Result<(), StoreError> {
        let series: Collection<RawDocumentBuf> = self.series_documents().clone_with_type();
        if let Some(mut minutes) = readable(series.find(these).projection(only).await)? {
            while let Some(minute) = minutes.try_next().await? {
                look(&minute);
            }
        }
        Ok(())
    }
}

/// The last 60 minutes, the one that it is included.
fn last_hour(now: DateTime) -> Span {
    Span::new(now.saturating_add_millis(-millis(HOUR)), now, Duration::ZERO)
}

/// Nothing, where this user may not read it.
pub(super) fn readable<T>(found: Result<T, impl Into<StoreError>>) -> Result<Option<T>, StoreError> {
    match found.map_err(Into::<StoreError>::into) {
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

fn step_of(span: Span, minute: &RawDocument) -> Option<usize> {
    span.step_of(minute.get_datetime("at").ok()?)
}

/// The fields that are whole numbers, and not below zero.
fn numbers_in(minute: &RawDocument) -> impl Iterator<Item = (&str, u64)> {
    minute.iter().filter_map(|field| {
        let (name, value) = field.ok()?;
        let number = whole_number(&Bson::try_from(value).ok()?)?;
        Some((name.as_str(), u64::try_from(number).ok()?))
    })
}

/// Steps of the same length. Each begins at a multiple of that length since 1970, so that those of different charts agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// The beginning of the first step: milliseconds since 1970.
    from: i64,
    /// The length of a step: whole minutes, in milliseconds.
    step: i64,
    /// How many there are, at least one.
    steps: usize,
}

impl Span {
    /// From the step that `since` is in to the one that `now` is in. A step has at least a minute and at most all that is
    /// kept; fractions of a minute count as one. The first step is at the earliest the one that the oldest time that is kept
    /// is in, so it may begin before that.
    fn new(since: DateTime, now: DateTime, step: Duration) -> Self {
        let kept = millis(KEPT);
        let now = now.timestamp_millis();
        let since = since.timestamp_millis().clamp(now.saturating_sub(kept), now);
        let minutes = step.as_millis().div_ceil(MINUTE_MS.unsigned_abs().into()).max(1);
        let step = i64::try_from(minutes).unwrap_or(kept).saturating_mul(MINUTE_MS).min(kept);
        let from = since - since.rem_euclid(step);
        let steps = usize::try_from((now - from) / step).unwrap_or(0) + 1;
        Self { from, step, steps }
    }

    /// The end, which is not in it.
    fn until(self) -> i64 {
        let length = integer(self.steps).saturating_mul(self.step);
        self.from.saturating_add(length)
    }

    fn beginnings(self) -> impl Iterator<Item = DateTime> {
        let steps = integer(self.steps);
        (0..steps).map(move |number| DateTime::from_millis(self.from + number * self.step))
    }

    /// The number of the step that a time is in. `None`: in none.
    fn step_of(self, at: DateTime) -> Option<usize> {
        let number = at.timestamp_millis().checked_sub(self.from)?.div_euclid(self.step);
        usize::try_from(number).ok().filter(|number| *number < self.steps)
    }

    /// The beginning of the step that the field `at` of a document is in, for the server.
    fn beginning_of_step(self) -> Document {
        let since = doc! { "$subtract": ["$at", DateTime::from_millis(self.from)] };
        doc! { "$subtract": ["$at", { "$mod": [since, self.step] }] }
    }
}

/// What a node was like in one step, on average. What nobody has noted is not known, and is not zero.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePoint {
    /// Its beginning.
    pub at: DateTime,
    pub running: Option<f64>,
    /// The load average of one minute.
    pub load: Option<f64>,
    /// The memory that was available: bytes.
    pub memory_available: Option<f64>,
}

/// What attempts ended on a node within the last hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeHour {
    /// How many in each of the last 60 minutes, the one that it is included.
    pub minutes: Vec<Ended>,
    /// How many of each queue, and how long they ran.
    pub queues: BTreeMap<QueueId, Numbers>,
}

impl Store {
    /// What attempts ended on each of these nodes within the last hour, by their names. One query, which reads 60 documents
    /// for each of them at most. One where nothing ended is left out.
    #[operation]
    pub async fn last_hour_on_nodes(
        &self,
        nodes: &[NodeName],
    ) -> Result<HashMap<String, NodeHour>, StoreError> {
        let mut hours = HashMap::new();
        if nodes.is_empty() {
            return Ok(hours);
        }
        let span = last_hour(self.now());
        let within = |node: &NodeName| {
            doc! { "_id": { "$gte": id_of_node(node, span.from), "$lt": id_of_node(node, span.until()) } }
        };
        let any = doc! { "$or": nodes.iter().map(within).collect::<Vec<_>>() };
        let only = doc! { "at": 1, OF_QUEUES: 1 };
        self.each_minute(any, only, |minute| add_to_hour(&mut hours, span, minute)).await?;
        Ok(hours)
    }

    /// What a node was like in each `step` since the one that `since` is in, up to now, in order, with steps as those of
    /// [`Store::series`]. One query, which reads a document for each minute at most.
    #[operation(%node)]
    pub async fn node_series(
        &self,
        node: &NodeName,
        since: DateTime,
        step: Duration,
    ) -> Result<Vec<NodePoint>, StoreError> {
        let span = Span::new(since, self.now(), step);
        let (from, until) = (id_of_node(node, span.from), id_of_node(node, span.until()));
        let step = span.beginning_of_step();
        let group = doc! {
            "_id": &step,
            "at": { "$first": &step },
            "running": { "$avg": "$running" },
            "load": { "$avg": "$load" },
            "memory_available": { "$avg": "$memory_available" },
        };
        let pipeline =
            [doc! { "$match": { "_id": { "$gte": from, "$lt": until } } }, doc! { "$group": group }];
        let steps = readable(collect(self.series_documents().aggregate(pipeline)).await)?;
        Ok(node_points(span, &steps.unwrap_or_default()))
    }
}

fn add_to_hour(hours: &mut HashMap<String, NodeHour>, span: Span, minute: &RawDocument) {
    let node = minute.get_document("_id").and_then(|id| id.get_str("node"));
    let (Ok(node), Some(step), Ok(queues)) = (node, step_of(span, minute), minute.get_document(OF_QUEUES))
    else {
        return;
    };
    let hour = hours.entry(node.to_owned()).or_default();
    hour.minutes.resize(span.beginnings().count(), Ended::default());
    for (queue, fields) in queues.iter().filter_map(Result::ok) {
        let (Ok(queue), Some(fields)) = (ObjectId::parse_str(queue.as_str()), fields.as_document()) else {
            continue;
        };
        let mut numbers = Numbers::default();
        numbers_in(fields).for_each(|(name, number)| numbers.add_field(name, number));
        if let Some(ended) = hour.minutes.get_mut(step) {
            ended.merge(numbers.ended);
        }
        hour.queues.entry(QueueId(queue)).or_default().merge(&numbers);
    }
}

fn node_points(span: Span, documents: &[Document]) -> Vec<NodePoint> {
    let unknown = |at| NodePoint { at, running: None, load: None, memory_available: None };
    let mut points: Vec<NodePoint> = span.beginnings().map(unknown).collect();
    for document in documents {
        let step = document.get_datetime("at").ok().and_then(|at| span.step_of(*at));
        let Some(point) = step.and_then(|step| points.get_mut(step)) else { continue };
        let value = |name| document.get(name).and_then(number);
        point.running = value("running");
        point.load = value("load");
        point.memory_available = value("memory_available");
    }
    points
}

#[cfg(test)]
mod tests {
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

    fn at(ms: i64) -> DateTime {
        DateTime::from_millis(ms)
    }

    #[test]
    fn steps_are_whole_minutes_and_begin_at_multiples() {
        let (since, now) = (at(1_000_000_000_123), at(1_000_000_200_123));
        let span = Span::new(since, now, Duration::from_secs(60));
        assert_eq!(span, Span { from: 999_999_960_000, step: 60_000, steps: 5 });
        assert_eq!(Span::new(since, now, Duration::ZERO), span);
        let odd = Span::new(since, now, Duration::from_secs(61));
        assert_eq!((odd.step, odd.from.rem_euclid(120_000)), (120_000, 0));
        assert_eq!(span.beginnings().last(), Some(at(1_000_000_200_000)));
    }

    #[test]
    fn there_is_no_more_than_is_kept_and_always_something() {
        let now = at(1_795_000_000_000);
        let minute = Duration::from_secs(60);
        assert_eq!(Span::new(at(0), now, minute).steps, 8 * 24 * 60 + 1);
        assert_eq!(Span::new(at(i64::MAX), now, minute).steps, 1, "the minute that it is");
        assert!(Span::new(at(i64::MIN), now, Duration::MAX).steps <= 2);
    }

    proptest! {
        #[test]
        fn every_time_of_a_span_is_in_one_step(
            back in 0_i64..=691_200_000, now in 1_000_000_000_000_i64..2_000_000_000_000, minutes in 1_u64..2_000,
        ) {
            let span = Span::new(at(now - back), at(now), Duration::from_secs(60 * minutes));
            let beginnings: Vec<DateTime> = span.beginnings().collect();
            for time in [now - back, now - back / 2, now] {
                let begins = beginnings[span.step_of(at(time)).unwrap()].timestamp_millis();
                prop_assert!((begins..begins + span.step).contains(&time));
            }
            prop_assert!(span.until() > now && span.until() - span.step <= now);
            prop_assert_eq!(span.step_of(at(span.until())), None);
            prop_assert_eq!(span.step_of(at(span.from - 1)), None);
        }
    }

    #[test]
    fn an_hour_of_a_node_has_what_ended_there_by_queue() {
        let now = DateTime::from_millis(1_795_000_020_000);
        let span = last_hour(now);
        let at = |back: i64| DateTime::from_millis(1_795_000_020_000 / 60_000 * 60_000 - back * 60_000);
        let queue = ObjectId::from_bytes([1; 12]);
        let minute = |back, queues: Bson| doc! { "_id": { "node": "n", "at": at(back) }, "at": at(back), "queues": queues };
        let of = |fields: Document| Bson::from(doc! { queue.to_hex(): fields, "odd": 5 });
        let mut hours = HashMap::new();
        for minute in [
            minute(59, of(doc! { "failed": 2_i64, "r5": 1_i64, "run_ms": 4_i64 })),
            minute(0, of(doc! { "succeeded": 3_i64, "r7": 3_i64, "run_ms": 30_i64 })),
            minute(60, of(doc! { "failed": 100_i64 })),
            minute(1, "many".into()),
        ] {
            add_to_hour(&mut hours, span, &RawDocumentBuf::try_from(&minute).unwrap());
        }
        let hour = &hours["n"];
        assert_eq!((hours.len(), hour.minutes.len(), hour.queues.len()), (1, 60, 1));
        assert_eq!((hour.minutes[0].failed, hour.minutes[59].succeeded), (2, 3));
        let numbers = &hour.queues[&QueueId(queue)];
        assert_eq!((numbers.ended.total(), numbers.ran.count()), (5, 4));
    }

    #[test]
    fn what_was_not_noted_is_not_known() {
        let now = DateTime::from_millis(1_795_000_020_000);
        let span = Span::new(DateTime::from_millis(1_794_999_900_000), now, Duration::from_secs(60));
        let at = span.beginnings().nth(1).unwrap();
        let found =
            [doc! { "_id": at, "at": at, "running": 3.0, "load": 0.5, "memory_available": Bson::Null }];
        let points = node_points(span, &found);
        let known = NodePoint { at, running: Some(3.0), load: Some(0.5), memory_available: None };
        assert_eq!(points[1], known);
        let unknown = |point: &NodePoint| {
            *point == NodePoint { at: point.at, running: None, load: None, ..known.clone() }
        };
        assert!(points.len() == 3 && unknown(&points[0]) && unknown(&points[2]), "{points:?}");
    }
}
