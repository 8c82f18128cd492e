//! Reading the numbers of nodes, for charts.

use disbatch_operation::operation;
use std::time::Duration;

use bson::{DateTime, Document, doc};
use futures::TryStreamExt;

use super::pending::id_of_node;
use super::read::readable;
use super::span::Span;
use crate::model::{NodeName, number};
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

impl Store {
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
    use bson::Bson;

    use super::*;

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
