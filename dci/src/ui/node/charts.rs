//! What a node was like over time.

use bson::Document;
use disbatch_core::model::NodeName;
use disbatch_core::series::NodePoint;
use disbatch_core::store::{Store, StoreError};
use serde_json::{Value, json};

use crate::ui::chart::Chart;
use crate::ui::overview::throughput::Span;
use crate::ui::parts::{Spark, bytes};

const GIBIBYTE: f64 = 1_073_741_824.0;

/// What a chart is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// How many runners lived.
    Running,
    /// The load average of one minute.
    Load,
    /// The memory that was available.
    Memory,
}

impl Of {
    pub const ALL: [Self; 3] = [Self::Running, Self::Load, Self::Memory];

    /// As addresses have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Load => "load",
            Self::Memory => "memory",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.name() == name)
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Running => "Running tasks",
            Self::Load => "Load",
            Self::Memory => "Memory available",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Running => "tasks",
            Self::Load => "processes",
            Self::Memory => "GiB",
        }
    }

    fn value(self, point: &NodePoint) -> Option<f64> {
        match self {
            Self::Running => point.running,
            Self::Load => point.load,
            Self::Memory => point.memory_available.map(|bytes| bytes / GIBIBYTE),
        }
    }

    fn told(self, value: f64) -> String {
        match self {
            Self::Running => format!("{value:.1}"),
            Self::Load => format!("{value:.2}"),
            Self::Memory => bytes(whole(value * GIBIBYTE)),
        }
    }
}

/// The chart of what was noted.
pub(super) fn first(of: Of, span: Span, points: &[NodePoint]) -> Chart {
    let words = words(of, span, points);
    // Hundredths, as loads are small.
    let value = |point: &NodePoint| (whole(of.value(point).unwrap_or_default() * 100.0), 0);
    let picture = Spark::new(&points.iter().map(value).collect::<Vec<_>>(), words.clone());
    Chart { of: of.name(), title: of.title(), picture, words }
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

/// What the chart shows.
pub(super) fn chart(of: Of, span: Span, points: &[NodePoint]) -> Value {
    let values: Vec<Option<f64>> = points.iter().map(|point| of.value(point)).collect();
    let seconds = |point: &NodePoint| point.at.timestamp_millis().div_euclid(1000);
    json!({
        "times": points.iter().map(seconds).collect::<Vec<_>>(),
        "unit": of.unit(),
        "every": span.every().as_secs().max(10),
        "words": words(of, span, points),
        "series": [{ "label": of.title(), "kind": "area", "tone": "accent", "values": values }],
    })
}

fn words(of: Of, span: Span, points: &[NodePoint]) -> String {
    let values: Vec<f64> = points.iter().filter_map(|point| of.value(point)).collect();
    let Some(last) = values.last() else {
        return format!("Nothing was noted within {}.", span.words());
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{} to {} within {}, {} at last.", of.told(least), of.told(most), span.words(), of.told(*last))
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
        let shown = chart(Of::Load, Span::Hour, &points);
        assert_eq!(shown["times"], json!([60, 120, 180]));
        assert_eq!(shown["series"][0]["values"], json!([0.25, null, 1.5]));
        assert_eq!(shown["words"], "0.25 to 1.50 within the last hour, 1.50 at last.");
        assert_eq!(
            words(Of::Running, Span::Day, &points),
            "1.0 to 2.0 within the last 24 hours, 2.0 at last."
        );
        assert!(words(Of::Memory, Span::Hour, &points).starts_with("238 MiB to 1.3 GiB within"));
        assert_eq!(
            words(Of::Load, Span::Week, &[point(0, None)]),
            "Nothing was noted within the last 7 days."
        );
    }

    #[test]
    fn there_is_a_picture_without_script() {
        for of in Of::ALL {
            assert_eq!(Of::named(of.name()), Some(of));
            let odd = [point(0, Some(f64::NAN)), point(60, Some(-1.0)), point(120, Some(f64::INFINITY))];
            assert!(first(of, Span::Hour, &odd).picture.render().is_ok());
        }
    }
}
