//! How many tasks ended over time, as a chart and as a picture without script.

use std::time::Duration;

use bson::DateTime;
use disbatch_core::series::{Ended, Point};
use serde_json::{Value, json};

use crate::params::Params;
use crate::ui::parts::{Spark, grouped};
use crate::ui::text;

/// A stretch of time up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
    Week,
}

impl Span {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    /// As addresses have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| span.name() == name)
    }

    /// The one that is asked for.
    pub fn of(params: &Params) -> Self {
        Self::named(&text(params.fields.get("span"))).unwrap_or(Self::Hour)
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::Hour => "the last hour",
            Self::Day => "the last 24 hours",
            Self::Week => "the last 7 days",
        }
    }

    /// How long it is.
    pub const fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Hour => 59 * 60,
            Self::Day => 24 * 3600,
            Self::Week => 7 * 24 * 3600,
        })
    }

    /// When it began that ends now.
    pub fn since(self, now: DateTime) -> DateTime {
        let length = i64::try_from(self.length().as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(now.timestamp_millis().saturating_sub(length))
    }

    /// What is added up.
    pub const fn step(self) -> Duration {
        Duration::from_secs(match self {
            Self::Hour => 60,
            Self::Day => 15 * 60,
            Self::Week => 2 * 3600,
        })
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Hour => "tasks per minute",
            Self::Day => "tasks per 15 minutes",
            Self::Week => "tasks per 2 hours",
        }
    }

    /// How often it is worth to look.
    pub const fn every(self) -> Duration {
        Duration::from_secs(match self {
            Self::Hour => 5,
            Self::Day => 60,
            Self::Week => 300,
        })
    }
}

/// What the chart shows.
pub fn chart(span: Span, points: &[Point]) -> Value {
    let series = |label: &str, kind: &str, tone: &str, number: fn(Ended) -> u64| {
        let values: Vec<u64> = points.iter().map(|point| number(point.numbers.ended)).collect();
        json!({ "label": label, "kind": kind, "tone": tone, "values": values })
    };
    let times: Vec<i64> = points.iter().map(|point| point.at.timestamp_millis().div_euclid(1000)).collect();
    let mut all = vec![
        series("Succeeded", "area", "accent", |ended| ended.succeeded),
        series("Failed", "bars", "bad", |ended| ended.failed),
    ];
    // It is seldom that there are any.
    if points.iter().any(|point| point.numbers.ended.other > 0) {
        all.push(series("Cancelled or lost", "line", "busy", |ended| ended.other));
    }
    json!({
        "times": times,
        "unit": span.unit(),
        "every": span.every().as_secs(),
        "words": words(&ends(points), span.words()),
        "series": all,
    })
}

/// The same as a picture, and in words.
pub fn picture(span: Span, points: &[Point]) -> Spark {
    spark(&ends(points), span.words())
}

/// What ended in each step.
pub fn ends(points: &[Point]) -> Vec<Ended> {
    points.iter().map(|point| point.numbers.ended).collect()
}

/// What ended, as a picture whose label tells it in words.
pub fn spark(numbers: &[Ended], when: &str) -> Spark {
    let pairs: Vec<(u64, u64)> = numbers.iter().map(|ended| (ended.total(), ended.failed)).collect();
    Spark::new(&pairs, words(numbers, when))
}

/// What ended, in words.
pub fn words(numbers: &[Ended], when: &str) -> String {
    let sum = numbers.iter().fold(Ended::default(), |mut sum, ended| {
        sum.merge(*ended);
        sum
    });
    match (sum.total(), sum.failed) {
        (0, _) => format!("No task ended within {when}."),
        (ended, 0) => format!("{} ended within {when}, none failed.", grouped(ended)),
        (ended, failed) => format!("{} ended within {when}, {} failed.", grouped(ended), grouped(failed)),
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::series::Numbers;

    use super::*;

    fn points() -> Vec<Point> {
        let point = |at: i64, succeeded, failed| {
            let ended = Ended { succeeded, failed, other: 1 };
            Point { at: DateTime::from_millis(at * 1000), numbers: Numbers { ended, ..Numbers::default() } }
        };
        vec![point(60, 1500, 0), point(120, 2, 3)]
    }

    #[test]
    fn the_chart_has_a_value_for_each_time() {
        let chart = chart(Span::Hour, &points());
        assert_eq!(chart["times"], json!([60, 120]));
        assert_eq!(chart["series"][0]["values"], json!([1500, 2]));
        assert_eq!(chart["series"][1]["values"], json!([0, 3]));
        assert_eq!(chart["series"][2]["values"], json!([1, 1]));
        assert_eq!(chart["unit"], "tasks per minute");
        let quiet = super::chart(Span::Day, &[]);
        assert_eq!((&quiet["times"], quiet["series"].as_array().map(Vec::len)), (&json!([]), Some(2)));
    }

    #[test]
    fn odd_spans_are_an_hour() {
        let of = |value: Value| {
            let fields = [("span".to_owned(), value)].into_iter().collect();
            Span::of(&Params { fields, ..Params::default() })
        };
        assert_eq!([of(json!("7d")), of(json!("<8d>")), of(json!([]))], [Span::Week, Span::Hour, Span::Hour]);
    }

    #[test]
    fn the_picture_tells_the_same_in_words() {
        let ended = ends(&points());
        assert_eq!(words(&ended, "a day"), "1,507 ended within a day, 3 failed.");
        assert_eq!(words(&ended[..1], "a day"), "1,501 ended within a day, none failed.");
        assert_eq!(words(&[], "a day"), "No task ended within a day.");
        for span in Span::ALL {
            assert_eq!(Span::named(span.name()), Some(span));
            assert!(span.length() >= span.step() && span.step() >= span.every());
        }
    }
}
