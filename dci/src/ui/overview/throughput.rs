//! How many tasks ended over time, as a chart and as a picture without script; and which queues did how much of it: layers of the overview's
//! chart.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bson::DateTime;
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::series::{Ended, Point};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::long_ago;
use futures::future::try_join_all;
use serde_json::Value;

use crate::params::Params;
use crate::ui::parts::{Spark, drawn, grouped};
use crate::ui::{names, text};

disbatch_values::words! {
    /// A stretch of time up to now, with its name in addresses.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Span {
        Hour = "1h",
        Day = "24h",
        Week = "7d",
    }
}

impl Span {
    /// The same in words; how long it is, what is added up, and how often it is worth to look, in seconds; and the unit.
    const fn about(self) -> (&'static str, [u64; 3], &'static str) {
        match self {
            Self::Hour => ("the last hour", [59 * 60, 60, 5], "tasks per minute"),
            Self::Day => ("the last 24 hours", [24 * 3600, 15 * 60, 60], "tasks per 15 minutes"),
            Self::Week => ("the last 7 days", [7 * 24 * 3600, 2 * 3600, 300], "tasks per 2 hours"),
        }
    }

    pub const fn words(self) -> &'static str {
        self.about().0
    }

    pub const fn length(self) -> Duration {
        Duration::from_secs(self.about().1[0])
    }

    pub const fn step(self) -> Duration {
        Duration::from_secs(self.about().1[1])
    }

    pub const fn every(self) -> Duration {
        Duration::from_secs(self.about().1[2])
    }

    pub fn asked(params: &Params) -> Option<Self> {
        Self::named(&text(params.fields.get("span")))
    }

    pub fn of(params: &Params) -> Self {
        Self::asked(params).unwrap_or(Self::Hour)
    }

    pub fn since(self, now: DateTime) -> DateTime {
        long_ago(now, self.length())
    }
}

/// What the chart shows. The last step goes on: what it has so far would look like a fall, so it stays empty.
pub fn chart(span: Span, points: &[Point]) -> Value {
    let values = |number: fn(&Ended) -> u64| {
        until_now(points.iter().map(|point| number(&point.numbers.ended)).collect())
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
fn about(span: Span, points: &[Point]) -> (&'static str, Duration, String) {
    (span.about().2, span.every(), words(&ends(points), span.words()))
}

pub fn picture(span: Span, points: &[Point]) -> Spark {
    spark(&ends(points), span.words())
}

fn ends(points: &[Point]) -> Vec<Ended> {
    points.iter().map(|point| point.numbers.ended).collect()
}

pub fn sum<'a>(numbers: impl IntoIterator<Item = &'a Ended>) -> Ended {
    numbers.into_iter().fold(Ended::default(), |mut sum, ended| {
        sum.merge(*ended);
        sum
    })
}

/// What ended, as a picture of the steps that are over, whose label tells all of it in words.
pub fn spark(numbers: &[Ended], when: &str) -> Spark {
    let over = numbers.split_last().map(|(_, over)| over).unwrap_or_default();
    let pairs: Vec<(u64, u64)> = over.iter().map(|ended| (ended.total(), ended.failed)).collect();
    Spark::new(&pairs, words(numbers, when))
}

fn words(numbers: &[Ended], when: &str) -> String {
    let sum = sum(numbers);
    match (sum.total(), sum.failed) {
        (0, _) => format!("No task ended within {when}."),
        (ended, 0) => format!("{} ended within {when}, none failed.", grouped(ended)),
        (ended, failed) => format!("{} ended within {when}, {} failed.", grouped(ended), grouped(failed)),
    }
}

/// So many queues have layers of their own; all others have one together.
const LAYERS: usize = 5;

const TONES: [&str; LAYERS] = ["accent", "cyan", "magenta", "good", "busy"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    name: String,
    points: Vec<Point>,
}

impl Share {
    fn total(&self) -> u64 {
        sum(self.points.iter().map(|point| &point.numbers.ended)).total()
    }
}

/// Those queues of which most ended. They are looked for among the ones that did most within the last hour, or since they are there: what
/// each did in a week is much to read.
pub async fn largest(
    store: &Store,
    span: Span,
    hour: &HashMap<QueueId, Vec<Ended>>,
) -> Result<Vec<Share>, StoreError> {
    let (queues, totals) = futures::try_join!(store.list_queues(), store.read_counters())?;
    let lately = |queue: &&Queue| hour.get(&queue.id).map_or(0, |steps| sum(steps).total());
    let ever = |queue: &&Queue| totals.as_ref().and_then(|totals| totals.of_queue(queue.id)).unwrap_or(0);
    let candidates: BTreeSet<QueueId> =
        most(&queues, lately).chain(most(&queues, ever)).map(|queue| queue.id).collect();
    let since = span.since(store.now());
    let shares = queues.iter().filter(|queue| candidates.contains(&queue.id)).map(async |queue| {
        let points = store.series(Some(queue.id), since, span.step()).await?;
        Ok::<_, StoreError>(Share { name: names::short(queue).to_string(), points })
    });
    let mut shares = try_join_all(shares).await?;
    shares.retain(|share| share.total() > 0);
    shares.sort_by_key(|share| Reverse(share.total()));
    shares.truncate(LAYERS);
    Ok(shares)
}

fn most<'a>(queues: &'a [Queue], tasks: impl Fn(&&'a Queue) -> u64) -> impl Iterator<Item = &'a Queue> {
    let mut queues: Vec<&Queue> = queues.iter().filter(|queue| tasks(queue) > 0).collect();
    queues.sort_by_key(|queue| Reverse(tasks(queue)));
    queues.into_iter().take(LAYERS)
}

/// The chart of what ended, in which each of these queues has a layer. One alone has no layers.
pub fn chart_of_shares(span: Span, points: &[Point], shares: &[Share]) -> Value {
    if shares.len() < 2 {
        return chart(span, points);
    }
    let mut others: Vec<u64> = points.iter().map(|point| point.numbers.ended.total()).collect();
    let mut series = Vec::new();
    for (share, tone) in shares.iter().zip(TONES) {
        let own = |point: &Point| {
            let same = share.points.iter().find(|own| own.at == point.at);
            same.map_or(0, |own| own.numbers.ended.total())
        };
        let values: Vec<u64> = points.iter().map(own).collect();
        // The two were not read at once.
        others.iter_mut().zip(&values).for_each(|(rest, own)| *rest = rest.saturating_sub(*own));
        series.push((share.name.clone(), "layer", tone, until_now(values)));
    }
    if others.iter().any(|tasks| *tasks > 0) {
        series.push(("Other queues".to_owned(), "layer", "soft", until_now(others)));
    }
    if points.iter().any(|point| point.numbers.ended.failed > 0) {
        let failed = points.iter().map(|point| point.numbers.ended.failed).collect();
        series.push(("Failed".to_owned(), "bars", "bad", until_now(failed)));
    }
    drawn(points.iter().map(|point| point.at), about(span, points), series)
}

/// The last step is not over yet.
fn until_now(values: Vec<u64>) -> Value {
    let now = values.len().saturating_sub(1);
    (0..).zip(values).map(|(at, value)| if at < now { Value::from(value) } else { Value::Null }).collect()
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
            assert_eq!(Span::named(span.as_str()), Some(span));
            assert!(span.length() >= span.step() && span.step() >= span.every());
        }
    }

    fn points_of(ended: [u64; 3], failed: u64) -> Vec<Point> {
        let point = |(at, succeeded): (i64, u64)| Point {
            at: DateTime::from_millis(at * 60_000),
            numbers: Numbers { ended: Ended { succeeded, failed, other: 0 }, ..Numbers::default() },
        };
        (1..).zip(ended).map(point).collect()
    }

    fn share(name: &str, ended: [u64; 3]) -> Share {
        Share { name: name.to_owned(), points: points_of(ended, 0) }
    }

    #[test]
    fn each_queue_has_a_layer_and_the_rest_is_of_the_others() {
        let shares = [share("mail", [7, 1, 9]), share("<import>", [2, 1, 0])];
        let drawn = chart_of_shares(Span::Hour, &points_of([10, 3, 9], 0), &shares);
        let of = |at: usize, name: &str| drawn["series"][at][name].clone();
        assert_eq!([of(0, "label"), of(1, "label"), of(2, "label")], ["mail", "<import>", "Other queues"]);
        assert_eq!(of(0, "values"), json!([7, 1, null]));
        assert_eq!(of(2, "values"), json!([1, 1, null]));
        assert_eq!((of(0, "kind"), of(3, "kind")), (json!("layer"), Value::Null));
        // What one of them has done since the whole was read does not count.
        let late = [share("mail", [7, 1, 0]), share("late", [900, 2, 0])];
        let drawn = chart_of_shares(Span::Hour, &points_of([7, 3, 0], 1), &late);
        assert_eq!(drawn["series"][2]["values"], json!([0, 1, null]));
        assert_eq!(drawn["series"][3]["label"], "Failed");
    }

    #[test]
    fn one_queue_alone_has_what_it_has_on_its_own_page() {
        let (all, one) = (points_of([10, 3, 9], 2), [share("mail", [10, 3, 9])]);
        assert_eq!(chart_of_shares(Span::Day, &all, &one), chart(Span::Day, &all));
        assert_eq!(chart_of_shares(Span::Day, &[], &[]), chart(Span::Day, &[]));
    }

    #[test]
    fn those_with_most_are_looked_at() {
        let queue = |name: &str| {
            bson::deserialize_from_document(bson::doc! { "_id": bson::oid::ObjectId::new(), "name": name })
        };
        let queues: Vec<Queue> = ["a", "bbb", "cc", ""].map(|name| queue(name).unwrap()).into();
        let names: Vec<String> = most(&queues, |queue| queue.display_name().len() as u64 % 24)
            .map(|queue| queue.display_name().clone())
            .collect();
        assert_eq!(names[..3], ["bbb", "cc", "a"]);
    }
}
