//! Which queues did how much of what ended over time: layers of the overview's chart.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use disbatch_core::model::{Queue, QueueId};
use disbatch_core::series::{Ended, Point};
use disbatch_core::store::{Store, StoreError};
use futures::future::try_join_all;
use serde_json::Value;

use super::throughput::{self, Span, sum};
use crate::ui::names;
use crate::ui::parts::drawn;

/// So many queues have layers of their own; all others have one together.
const MOST: usize = 5;

/// The tones of the layers, from below.
const TONES: [&str; MOST] = ["accent", "cyan", "magenta", "good", "busy"];

/// What ended in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// What people call it.
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
    let ever = |queue: &&Queue| {
        let kept = totals.as_ref().and_then(|totals| totals.of_queue(queue.id));
        kept.unwrap_or(0)
    };
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
    shares.truncate(MOST);
    Ok(shares)
}

fn most<'a>(queues: &'a [Queue], tasks: impl Fn(&&'a Queue) -> u64) -> impl Iterator<Item = &'a Queue> {
    let mut queues: Vec<&Queue> = queues.iter().filter(|queue| tasks(queue) > 0).collect();
    queues.sort_by_key(|queue| Reverse(tasks(queue)));
    queues.into_iter().take(MOST)
}

/// The chart of what ended, in which each of these queues has a layer. One alone has no layers.
pub fn chart(span: Span, points: &[Point], shares: &[Share]) -> Value {
    if shares.len() < 2 {
        return throughput::chart(span, points);
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
    let about = throughput::about(span, points);
    drawn(points.iter().map(|point| point.at), about, series)
}

/// The last step is not over yet.
fn until_now(values: Vec<u64>) -> Value {
    let now = values.len().saturating_sub(1);
    (0..).zip(values).map(|(at, value)| if at < now { Value::from(value) } else { Value::Null }).collect()
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use disbatch_core::series::Numbers;
    use serde_json::json;

    use super::*;

    fn points(ended: [u64; 3], failed: u64) -> Vec<Point> {
        let point = |(at, succeeded): (i64, u64)| Point {
            at: DateTime::from_millis(at * 60_000),
            numbers: Numbers { ended: Ended { succeeded, failed, other: 0 }, ..Numbers::default() },
        };
        (1..).zip(ended).map(point).collect()
    }

    fn share(name: &str, ended: [u64; 3]) -> Share {
        Share { name: name.to_owned(), points: points(ended, 0) }
    }

    #[test]
    fn each_queue_has_a_layer_and_the_rest_is_of_the_others() {
        let shares = [share("mail", [7, 1, 9]), share("<import>", [2, 1, 0])];
        let drawn = chart(Span::Hour, &points([10, 3, 9], 0), &shares);
        let of = |at: usize, name: &str| drawn["series"][at][name].clone();
        assert_eq!([of(0, "label"), of(1, "label"), of(2, "label")], ["mail", "<import>", "Other queues"]);
        assert_eq!(of(0, "values"), json!([7, 1, null]));
        assert_eq!(of(2, "values"), json!([1, 1, null]));
        assert_eq!((of(0, "kind"), of(3, "kind")), (json!("layer"), Value::Null));
        // What one of them has done since the whole was read does not count.
        let late = [share("mail", [7, 1, 0]), share("late", [900, 2, 0])];
        let drawn = chart(Span::Hour, &points([7, 3, 0], 1), &late);
        assert_eq!(drawn["series"][2]["values"], json!([0, 1, null]));
        assert_eq!(drawn["series"][3]["label"], "Failed");
    }

    #[test]
    fn one_queue_alone_has_what_it_has_on_its_own_page() {
        let (all, one) = (points([10, 3, 9], 2), [share("mail", [10, 3, 9])]);
        assert_eq!(chart(Span::Day, &all, &one), throughput::chart(Span::Day, &all));
        assert_eq!(chart(Span::Day, &[], &[]), throughput::chart(Span::Day, &[]));
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
