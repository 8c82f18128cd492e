//! Reading the numbers of nodes, for charts.

use disbatch_operation::operation;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, RawDocument, doc};
use futures::TryStreamExt;

use super::numbers::{Ended, Numbers};
use super::pending::{OF_QUEUES, id_of_node};
use super::read::{last_hour, numbers_in, readable, step_of};
use super::span::Span;
use crate::model::{NodeName, QueueId, number};
use crate::store::{Store, StoreError};

/// What a node was like in one step, on average. What nobody has noted is not known, and is not zero.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePoint {
    /// Its beginning.
    pub at: DateTime,
    /// How many runners lived.
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
            doc! { "_id": { "$gte": id_of_node(node, span.from()), "$lt": id_of_node(node, span.until()) } }
        };
        let any = doc! { "$or": nodes.iter().map(within).collect::<Vec<_>>() };
        let found = self.raw_series().find(any).projection(doc! { "at": 1, OF_QUEUES: 1 }).await;
        if let Some(mut minutes) = readable(found)? {
            while let Some(minute) = minutes.try_next().await? {
                add_to_hour(&mut hours, span, &minute);
            }
        }
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
        let (from, until) = (id_of_node(node, span.from()), id_of_node(node, span.until()));
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
        let found = self.series_documents().aggregate(pipeline).await;
        let steps = match readable(found)? {
            Some(steps) => steps.try_collect().await?,
            None => Vec::new(),
        };
        Ok(points(span, &steps))
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

fn points(span: Span, documents: &[Document]) -> Vec<NodePoint> {
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
    use bson::{Bson, RawDocumentBuf};

    use super::*;

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
        let points = points(span, &found);
        let known = NodePoint { at, running: Some(3.0), load: Some(0.5), memory_available: None };
        assert_eq!(points[1], known);
        let unknown = |point: &NodePoint| {
            *point == NodePoint { at: point.at, running: None, load: None, ..known.clone() }
        };
        assert!(points.len() == 3 && unknown(&points[0]) && unknown(&points[2]), "{points:?}");
    }
}
