//! How many tasks ended over time, as a chart and as a picture without script.

use std::time::Duration;

use bson::DateTime;
use disbatch_core::series::{Ended, Point};
use serde_json::Value;

use crate::params::Params;
use crate::ui::parts::{Spark, drawn, grouped};
use crate::ui::text;

/// A stretch of time up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
    Week,
}

struct About {
    /// As addresses have it.
    name: &'static str,
    words: &'static str,
    /// How long it is, what is added up, and how often it is worth to look: seconds.
    times: [u64; 3],
    unit: &'static str,
}

impl Span {
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    const fn about(self) -> About {
        match self {
            Self::Hour => About {
                name: "1h",
                words: "the last hour",
                times: [59 * 60, 60, 5],
                unit: "tasks per minute",
            },
            Self::Day => About {
                name: "24h",
                words: "the last 24 hours",
                times: [24 * 3600, 15 * 60, 60],
                unit: "tasks per 15 minutes",
            },
            Self::Week => About {
                name: "7d",
                words: "the last 7 days",
                times: [7 * 24 * 3600, 2 * 3600, 300],
                unit: "tasks per 2 hours",
            },
        }
    }

    pub const fn name(self) -> &'static str {
        self.about().name
    }

    pub const fn words(self) -> &'static str {
        self.about().words
    }

    pub const fn length(self) -> Duration {
        Duration::from_secs(self.about().times[0])
    }

    pub const fn step(self) -> Duration {
        Duration::from_secs(self.about().times[1])
    }

    pub const fn every(self) -> Duration {
        Duration::from_secs(self.about().times[2])
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| span.name() == name)
    }

    pub fn asked(params: &Params) -> Option<Self> {
        Self::named(&text(params.fields.get("span")))
    }

    pub fn of(params: &Params) -> Self {
        Self::asked(params).unwrap_or(Self::Hour)
    }

    /// When it began that ends now.
    pub fn since(self, now: DateTime) -> DateTime {
        let length = i64::try_from(self.length().as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(now.timestamp_millis().saturating_sub(length))
    }
}

/// What the chart shows. The last step goes on: what it has so far would look like a fall, so it stays empty.
pub fn chart(span: Span, points: &[Point]) -> Value {
    let values = |number: fn(&Ended) -> u64| -> Value {
        let over = over(points).iter().map(|point| Value::from(number(&point.numbers.ended)));
        over.chain(points.last().map(|_| Value::Null)).collect()
    };
    let mut series = vec![
        ("Succeeded", "area", "accent", values(|ended| ended.succeeded)),
        ("Failed", "bars", "bad", values(|ended| ended.failed)),
    ];
    // It is seldom that there are any.
    if points.iter().any(|point| point.numbers.ended.other > 0) {
        series.push(("Cancelled or lost", "line", "busy", values(|ended| ended.other)));
    }
    drawn(points.iter().map(|point| point.at), about(span, points), series)
}

/// What a chart says of itself: its unit, how often it is worth to look, and the same in words.
pub fn about(span: Span, points: &[Point]) -> (&'static str, Duration, String) {
    (span.about().unit, span.every(), words(&ends(points), span.words()))
}

/// The same as a picture, and in words.
pub fn picture(span: Span, points: &[Point]) -> Spark {
    spark(&ends(points), span.words())
}

/// What ended in each step.
pub fn ends(points: &[Point]) -> Vec<Ended> {
    points.iter().map(|point| point.numbers.ended).collect()
}

pub fn sum<'a>(numbers: impl IntoIterator<Item = &'a Ended>) -> Ended {
    numbers.into_iter().fold(Ended::default(), |mut sum, ended| {
        sum.merge(*ended);
        sum
    })
}

/// The steps that are over.
fn over<T>(steps: &[T]) -> &[T] {
    steps.split_last().map_or(&[], |(_, over)| over)
}

/// What ended, as a picture of the steps that are over, whose label tells all of it in words.
pub fn spark(numbers: &[Ended], when: &str) -> Spark {
    let pairs: Vec<(u64, u64)> = over(numbers).iter().map(|ended| (ended.total(), ended.failed)).collect();
    Spark::new(&pairs, words(numbers, when))
}

/// What ended, in words.
pub fn words(numbers: &[Ended], when: &str) -> String {
    let sum = sum(numbers);
    match (sum.total(), sum.failed) {
        (0, _) => format!("No task ended within {when}."),
        (ended, 0) => format!("{} ended within {when}, none failed.", grouped(ended)),
        (ended, failed) => format!("{} ended within {when}, {} failed.", grouped(ended), grouped(failed)),
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::series::Numbers;
    use serde_json::json;

    use super::*;

    fn points() -> Vec<Point> {
        let point = |at: i64, succeeded, failed| {
            let ended = Ended { succeeded, failed, other: 1 };
            Point { at: DateTime::from_millis(at * 1000), numbers: Numbers { ended, ..Numbers::default() } }
        };
        vec![point(60, 1500, 0), point(120, 2, 3), point(180, 1, 0)]
    }

    #[test]
    fn the_chart_has_a_value_for_each_time_that_is_over() {
        let chart = chart(Span::Hour, &points());
        assert_eq!(chart["times"], json!([60, 120, 180]));
        assert_eq!(chart["series"][0]["values"], json!([1500, 2, null]));
        assert_eq!(chart["series"][1]["values"], json!([0, 3, null]));
        assert_eq!(chart["series"][2]["values"], json!([1, 1, null]));
        assert_eq!(picture(Span::Hour, &points()), picture_of_two());
        assert_eq!(chart["unit"], "tasks per minute");
        let quiet = super::chart(Span::Day, &[]);
        assert_eq!((&quiet["times"], quiet["series"].as_array().map(Vec::len)), (&json!([]), Some(2)));
    }

    fn picture_of_two() -> Spark {
        Spark::new(&[(1501, 0), (6, 3)], "1,509 ended within the last hour, 3 failed.".to_owned())
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
        assert_eq!(words(&ended, "a day"), "1,509 ended within a day, 3 failed.");
        assert_eq!(words(&ended[..1], "a day"), "1,501 ended within a day, none failed.");
        assert_eq!(words(&[], "a day"), "No task ended within a day.");
        for span in Span::ALL {
            assert_eq!(Span::named(span.name()), Some(span));
            assert!(span.length() >= span.step() && span.step() >= span.every());
        }
    }
}
