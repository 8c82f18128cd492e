//! How long the tasks of a queue wait and run, and how many end, over time.

use std::time::Duration;

use bson::{Bson, Document};
use disbatch_core::audit::Changed;
use disbatch_core::model::QueueId;
use disbatch_core::series::{Histogram, Point};
use disbatch_core::store::{Store, StoreError};
use serde_json::{Value, json};

use crate::ui::integer;
use crate::ui::overview::throughput::{self, Span};
use crate::ui::parts::{Chart, Charts, Spark, drawn, grouped};

const PERCENTILES: [(u8, &str, &str, &str); 3] =
    [(50, "median", "area", "accent"), (95, "p95", "line", "busy"), (99, "p99", "dashes", "bad")];

/// Units of durations: from so many milliseconds on, and how many of them one is.
const UNITS: [(f64, f64, &str); 4] = [
    (7_200_000.0, 3_600_000.0, "hours"),
    (120_000.0, 60_000.0, "minutes"),
    (1_000.0, 1_000.0, "seconds"),
    (0.0, 1.0, "milliseconds"),
];

disbatch_values::words! {
    /// What a chart is of, as addresses name it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Of {
        Ended = "ended",
        Waited = "waited",
        Ran = "ran",
    }
}

pub(super) fn first(queue: QueueId, span: Span, points: &[Point]) -> Charts {
    let titles = ["Throughput", "Waiting time", "Running time"];
    let chart = |(of, title): (Of, &'static str)| {
        let slow = |point: &Point| {
            let slow = times(of, point).percentile(95).unwrap_or_default().as_millis();
            (u64::try_from(slow).unwrap_or(u64::MAX), 0)
        };
        let picture = match of {
            Of::Ended => throughput::picture(span, points),
            Of::Waited | Of::Ran => {
                Spark::new(&points.iter().map(slow).collect::<Vec<_>>(), words(of, span, points))
            }
        };
        Chart { of: of.as_str(), title, picture }
    };
    let charts = Of::ALL.into_iter().zip(titles).map(chart).collect();
    Charts { place: format!("/queues/{queue}"), tasks: format!("/tasks?queue={queue}"), span, charts }
}

pub(super) async fn points(store: &Store, queue: QueueId, span: Span) -> Result<Vec<Point>, StoreError> {
    store.series(Some(queue), span.since(store.now()), span.step()).await
}

pub(super) fn chart(of: Of, span: Span, points: &[Point]) -> Value {
    if of == Of::Ended {
        return throughput::chart(span, points);
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let lines = PERCENTILES.map(|(percent, ..)| {
        let value = |point: &Point| times(of, point).percentile(percent).map(milliseconds);
        points.iter().map(value).collect::<Vec<_>>()
    });
    let most = lines.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let (_, size, unit) = UNITS.into_iter().find(|(from, ..)| most >= *from).unwrap_or(UNITS[3]);
    let series = PERCENTILES.into_iter().zip(lines).map(|((_, label, kind, tone), values)| {
        let values: Vec<Option<f64>> = values.into_iter().map(|value| value.map(|ms| ms / size)).collect();
        (label, kind, tone, json!(values))
    });
    let every = span.every().max(Duration::from_secs(10));
    drawn(points.iter().map(|point| point.at), (unit, every, words(of, span, points)), series)
}

/// What was changed meanwhile that has to do with how many tasks run: when, in seconds, and in words.
pub(super) fn marks(changes: &[Changed]) -> Value {
    let mark = |changed: &Changed| {
        let (before, after) = (&changed.before, &changed.after);
        let number = |fields: &Document, name: &str| integer(fields, name).unwrap_or(0);
        let words: Vec<String> = after
            .iter()
            .filter_map(|(name, value)| match (name.as_str(), value) {
                ("threads", _) => Some(format!("threads {} → {}", number(before, name), number(after, name))),
                ("paused", Bson::Boolean(true)) => Some("paused".to_owned()),
                ("paused", _) => Some("resumed".to_owned()),
                ("accepting", Bson::Boolean(false)) => Some("takes no new tasks".to_owned()),
                ("accepting", _) => Some("takes new tasks".to_owned()),
                _ => None, // It changes nothing about that.
            })
            .collect();
        let at = changed.at.timestamp_millis().div_euclid(1000);
        (!words.is_empty()).then(|| json!({ "at": at, "text": words.join(", ") }))
    };
    changes.iter().filter_map(mark).collect()
}

fn times(of: Of, point: &Point) -> &Histogram {
    match of {
        Of::Ran => &point.numbers.ran,
        Of::Ended | Of::Waited => &point.numbers.waited,
    }
}

fn words(of: Of, span: Span, points: &[Point]) -> String {
    let mut all = Histogram::default();
    points.iter().for_each(|point| all.merge(times(of, point)));
    let (did, had) = if of == Of::Waited { ("was started", "had waited") } else { ("ended", "had run") };
    match PERCENTILES.map(|(percent, ..)| all.percentile(percent)) {
        [Some(half), Some(most), Some(nearly_all)] => format!(
            "Of {} tasks within {}, half {had} for at most {}, 95 % for at most {}, 99 % for at most {}.",
            grouped(all.count()),
            span.words(),
            length(half),
            length(most),
            length(nearly_all)
        ),
        _ => format!("No task {did} within {}.", span.words()),
    }
}

pub fn length(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        ..1.0 => "1 ms".to_owned(),
        ..1_000.0 => format!("{ms:.0} ms"),
        ..60_000.0 => format!("{:.1} s", ms / 1000.0),
        ..7_200_000.0 => format!("{:.1} min", ms / 60_000.0),
        ..172_800_000.0 => format!("{:.1} h", ms / 3_600_000.0),
        _ => format!("{:.1} d", ms / 86_400_000.0),
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};
    use disbatch_core::series::Numbers;

    use super::*;

    fn point(at: i64, waited: &[u64]) -> Point {
        let mut numbers = Numbers::default();
        waited.iter().for_each(|ms| numbers.waited.add(Duration::from_millis(*ms), 1));
        Point { at: DateTime::from_millis(at * 1000), numbers }
    }

    #[test]
    fn times_are_shown_in_a_unit_that_fits() {
        let unit = |waited: &[u64]| chart(Of::Waited, Span::Hour, &[point(60, waited)])["unit"].clone();
        assert_eq!([unit(&[]), unit(&[5]), unit(&[3_000])], ["milliseconds", "milliseconds", "seconds"]);
        assert_eq!([unit(&[300_000]), unit(&[90_000_000])], ["minutes", "hours"]);
    }

    #[test]
    fn changes_that_matter_are_marked() {
        let changed = |before, after| Changed { at: DateTime::from_millis(61_500), before, after };
        let changes = [
            changed(doc! { "threads": 2 }, doc! { "threads": 4_i64, "paused": true }),
            changed(doc! { "paused": true }, doc! { "paused": bson::Bson::Null }),
            changed(doc! { "sort": "fifo" }, doc! { "sort": "<lifo>" }),
        ];
        let expected =
            json!([{ "at": 61, "text": "threads 2 → 4, paused" }, { "at": 61, "text": "resumed" }]);
        assert_eq!(marks(&changes), expected);
    }

    #[test]
    fn what_nobody_noted_is_a_gap_and_not_zero() {
        let chart = chart(Of::Waited, Span::Hour, &[point(60, &[2_000, 2_000]), point(120, &[])]);
        assert_eq!(chart["times"], json!([60, 120]));
        let half = chart["series"][0]["values"].as_array().unwrap();
        assert!((1.4..2.9).contains(&half[0].as_f64().unwrap()) && half[1].is_null(), "{chart}");
        assert_eq!(chart["series"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn the_same_is_told_in_words() {
        let told = words(Of::Waited, Span::Day, &[point(0, &[4; 10]), point(60, &[])]);
        assert!(
            told.starts_with("Of 10 tasks within the last 24 hours, half had waited for at most "),
            "{told}"
        );
        assert_eq!(words(Of::Ran, Span::Hour, &[]), "No task ended within the last hour.");
        assert_eq!(words(Of::Waited, Span::Hour, &[]), "No task was started within the last hour.");
        let lengths =
            [0, 250, 2_500, 90_000, 9_000_000, 200_000_000].map(|ms| length(Duration::from_millis(ms)));
        assert_eq!(lengths, ["1 ms", "250 ms", "2.5 s", "1.5 min", "2.5 h", "2.3 d"]);
        let queue = QueueId(bson::oid::ObjectId::from_bytes([1; 12]));
        for (chart, of) in first(queue, Span::Hour, &[]).charts.iter().zip(Of::ALL) {
            assert_eq!((Of::named(chart.of), chart.of), (Some(of), of.as_str()));
            assert_eq!(chart.picture.label, words(of, Span::Hour, &[]));
        }
    }
}
