//! What a node was like over time.

use std::time::Duration;

use bson::Document;
use disbatch_core::model::NodeName;
use disbatch_core::series::NodePoint;
use disbatch_core::store::{Store, StoreError};
use serde_json::{Value, json};

use crate::ui::overview::throughput::Span;
use crate::ui::parts::{Chart, Charts, Spark, bytes, drawn};

const GIBIBYTE: f64 = 1_073_741_824.0;

/// What a chart is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of {
    /// As addresses have it.
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    value: fn(&NodePoint) -> Option<f64>,
    words: fn(f64) -> String,
}

/// How many runners lived.
const RUNNING: Of = Of {
    name: "running",
    title: "Running tasks",
    unit: "tasks",
    value: |point| point.running,
    words: |value| format!("{value:.1}"),
};

/// The load average of one minute.
const LOAD: Of = Of {
    name: "load",
    title: "Load",
    unit: "processes",
    value: |point| point.load,
    words: |value| format!("{value:.2}"),
};

/// The memory that was available.
const MEMORY: Of = Of {
    name: "memory",
    title: "Memory available",
    unit: "GiB",
    value: |point| point.memory_available.map(|bytes| bytes / GIBIBYTE),
    words: |value| bytes(whole(value * GIBIBYTE)),
};

const ALL: [Of; 3] = [RUNNING, LOAD, MEMORY];

impl Of {
    pub fn named(name: &str) -> Self {
        ALL.into_iter().find(|of| of.name == name).unwrap_or(RUNNING)
    }
}

/// The charts of what was noted, for the page of a node.
pub(super) fn first((place, tasks): (String, String), span: Span, points: &[NodePoint]) -> Charts {
    let charts = ALL.map(|of| {
        let words = words(of, span, points);
        // Hundredths, as loads are small.
        let value = |point: &NodePoint| (whole((of.value)(point).unwrap_or_default() * 100.0), 0);
        let picture = Spark::new(&points.iter().map(value).collect::<Vec<_>>(), words.clone());
        Chart { of: of.name, title: of.title, picture, words }
    });
    Charts { place, tasks, span, charts: charts.into() }
}

/// A number that is none below zero, without its fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats end at the bounds"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// What a node was like within a stretch of time up to now. Nothing of one without a name.
pub(super) async fn points(store: &Store, node: &Document, span: Span) -> Result<Vec<NodePoint>, StoreError> {
    let Ok(name) = node.get_str("node") else { return Ok(Vec::new()) };
    store.node_series(&NodeName::new(name), span.since(store.now()), span.step()).await
}

pub(super) fn chart(of: Of, span: Span, points: &[NodePoint]) -> Value {
    let values: Vec<Option<f64>> = points.iter().map(of.value).collect();
    let every = span.every().max(Duration::from_secs(10));
    let series = [(of.title, "area", "accent", json!(values))];
    drawn(points.iter().map(|point| point.at), (of.unit, every, words(of, span, points)), series)
}

fn words(of: Of, span: Span, points: &[NodePoint]) -> String {
    let values: Vec<f64> = points.iter().filter_map(of.value).collect();
    let Some(last) = values.last() else {
        return format!("Nothing was noted within {}.", span.words());
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let [least, most, last] = [least, most, *last].map(of.words);
    format!("{least} to {most} within {}, {last} at last.", span.words())
}

#[cfg(test)]
mod tests {
    use askama::Template;
    use bson::DateTime;

    use super::*;

    fn point(at: i64, load: Option<f64>) -> NodePoint {
        let memory_available = load.map(|load| load * 1e9);
        NodePoint {
            at: DateTime::from_millis(at * 1000),
            running: load.map(f64::ceil),
            load,
            memory_available,
        }
    }

    #[test]
    fn what_was_not_noted_is_a_gap() {
        let points = [point(60, Some(0.25)), point(120, None), point(180, Some(1.5))];
        let shown = chart(LOAD, Span::Hour, &points);
        assert_eq!(shown["times"], json!([60, 120, 180]));
        assert_eq!(shown["series"][0]["values"], json!([0.25, null, 1.5]));
        assert_eq!(shown["words"], "0.25 to 1.50 within the last hour, 1.50 at last.");
        assert_eq!(words(RUNNING, Span::Day, &points), "1.0 to 2.0 within the last 24 hours, 2.0 at last.");
        assert!(words(MEMORY, Span::Hour, &points).starts_with("238 MiB to 1.3 GiB within"));
        assert_eq!(words(LOAD, Span::Week, &[point(0, None)]), "Nothing was noted within the last 7 days.");
    }

    #[test]
    fn there_is_a_picture_without_script() {
        let odd = [point(0, Some(f64::NAN)), point(60, Some(-1.0)), point(120, Some(f64::INFINITY))];
        for chart in first(("/nodes/n".to_owned(), "/tasks?node=n".to_owned()), Span::Hour, &odd).charts {
            assert_eq!(Of::named(chart.of).name, chart.of);
            assert!(chart.picture.render().is_ok());
        }
    }
}
