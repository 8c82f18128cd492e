//! What a node did within the last hour, beside the other nodes that did the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use bson::Document;
use disbatch_core::model::{NodeName, QueueId};
use disbatch_core::series::{Ended, Histogram, NodeHour, Numbers};
use disbatch_core::store::StoreError;

use crate::state::State;
use crate::ui::overview::throughput::{Span, spark, sum};
use crate::ui::parts::{Pill, Spark};
use crate::ui::plain;
use crate::ui::queue::length;

const KEPT: Duration = Duration::from_secs(5);

/// Of so many nodes it is read.
const MOST: usize = 200;

/// Runs are compared from so many on.
const ENOUGH: u64 = 5;

/// From these factors on a node is slow, and very slow. Run times are known within a factor of 1.42.
const SLOW: [f64; 2] = [1.6, 3.0];

/// A run must take so many seconds longer for that, or all runs of the hour together so many: what are milliseconds, and few, nobody feels.
const BEHIND: f64 = 1.0;
const LOST: f64 = 180.0;

/// What each node did, by name.
pub type Hours = HashMap<String, NodeHour>;

pub async fn last_hour(state: &State, nodes: &[Document]) -> Result<Arc<Hours>, StoreError> {
    let names = nodes.iter().filter_map(|node| node.get_str("node").ok()).take(MOST);
    let names: Vec<NodeName> = names.map(NodeName::new).collect();
    state.hours.get(KEPT, state.store.last_hour_on_nodes(&names)).await
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// How its runs compare with those of others; nothing if that cannot be told.
    pub speed: Option<Speed>,
    /// Attempts that ended in each minute.
    minutes: Vec<Ended>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OfQueue {
    pub queue: QueueId,
    pub ended: u64,
    pub failed: u64,
    /// Median and p95 of the run time there, and on all other nodes.
    pub here: [String; 2],
    pub elsewhere: [String; 2],
    pub speed: Option<Speed>,
}

fn others(hours: &Hours, node: &str, queue: QueueId) -> Histogram {
    let mut all = Histogram::default();
    let others = hours.iter().filter(|(name, _)| name.as_str() != node);
    others.filter_map(|(_, hour)| hour.queues.get(&queue)).for_each(|numbers| all.merge(&numbers.ran));
    all
}

/// How the median of one compares with that of the other.
fn speed(runs: &Histogram, elsewhere: &Histogram) -> Option<Speed> {
    let median = |runs: &Histogram| runs.percentile(50).filter(|_| runs.count() >= ENOUGH);
    let (here, elsewhere) = (median(runs)?.as_secs_f64(), median(elsewhere)?.as_secs_f64());
    let behind = here - elsewhere;
    let speed = || Speed { factor: here / elsewhere, behind, lost: behind * runs.count() as f64 };
    (elsewhere > 0.0).then(speed)
}

impl Work {
    /// That of the node with this name. Queues count by how many of their runs ended there.
    pub fn of(hours: &Hours, node: &Document) -> Self {
        let name = plain(node.get("node"));
        let Some(hour) = hours.get(&name) else { return Self::default() };
        let (mut sum, mut weights, mut lost) = (0.0, 0.0, 0.0);
        for (queue, numbers) in &hour.queues {
            if let Some(speed) = speed(&numbers.ran, &others(hours, &name, *queue)) {
                let weight = numbers.ran.count() as f64;
                sum += speed.factor.ln() * weight;
                weights += weight;
                lost += speed.lost;
            }
        }
        let speed = || Speed { factor: (sum / weights).exp(), behind: lost / weights, lost };
        Self { speed: (weights > 0.0).then(speed), minutes: hour.minutes.clone() }
    }

    pub fn ended(&self) -> Ended {
        sum(&self.minutes)
    }

    pub fn a_minute(&self) -> String {
        match self.ended().total() {
            0 => "0".to_owned(),
            ended => format!("{:.1}", ended as f64 / 60.0),
        }
    }

    pub fn spark(&self) -> Spark {
        spark(&self.minutes, Span::Hour.words())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// By how many times they are longer.
    factor: f64,
    /// By how many seconds each is longer, and all of the hour together.
    behind: f64,
    lost: f64,
}

impl Speed {
    pub fn words(self) -> String {
        format!("{:.1} ×", self.factor)
    }

    pub fn pill(self) -> Option<Pill> {
        let [slow, very] = SLOW;
        if self.behind < BEHIND && self.lost < LOST {
            return None;
        }
        match self.factor {
            factor if factor >= very => Some(Pill { tone: "bad", word: "slow" }),
            factor if factor >= slow => Some(Pill { tone: "busy", word: "slow" }),
            _ => None,
        }
    }
}

impl OfQueue {
    /// Those of a node, the slowest first.
    pub fn all(hours: &Hours, node: &Document) -> Vec<Self> {
        let name = plain(node.get("node"));
        let of = |(queue, Numbers { ended, ran, .. }): (&QueueId, &Numbers)| {
            let elsewhere = others(hours, &name, *queue);
            let times = |runs: &Histogram| {
                [50, 95].map(|percent| runs.percentile(percent).map(length).unwrap_or_default())
            };
            Self {
                queue: *queue,
                ended: ended.total(),
                failed: ended.failed,
                here: times(ran),
                elsewhere: times(&elsewhere),
                speed: speed(ran, &elsewhere),
            }
        };
        let mut all: Vec<Self> = hours.get(&name).into_iter().flat_map(|hour| &hour.queues).map(of).collect();
        let order = |work: &Self| work.speed.map(|speed| speed.factor).unwrap_or_default();
        all.sort_by(|one, other| order(other).total_cmp(&order(one)).then(one.queue.cmp(&other.queue)));
        all
    }

    /// All run times with the heads of their columns.
    pub fn times(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let heads = ["Median", "p95", "Median elsewhere", "p95 elsewhere"];
        heads.into_iter().zip(self.here.iter().chain(&self.elsewhere))
    }
}

/// How busy the processors of a node are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "nodes/load.html")]
pub struct Load {
    /// Nothing if it is not known.
    pub words: String,
    /// The class of what it looks like; nothing if it is as it should be.
    tone: &'static str,
}

impl askama::filters::HtmlSafe for Load {}

impl Load {
    /// More processes than processors want to run, and more than twice as many.
    pub fn of(load: Option<f64>, cpus: Option<u64>) -> Self {
        let Some(load) = load else { return Self::default() };
        let Some(cpus) = cpus else { return Self { words: format!("{load:.2}"), tone: "" } };
        let tone = match load / cpus.max(1) as f64 {
            share if share > 2.0 => "bad",
            share if share > 1.0 => "busy",
            _ => "",
        };
        Self { words: format!("{load:.2} of {cpus}"), tone }
    }

    pub fn is_far_too_high(&self) -> bool {
        self.tone == "bad"
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    fn queue(number: u8) -> QueueId {
        QueueId(ObjectId::from_bytes([number; 12]))
    }

    fn hour(of: &[(u8, u64, u64)]) -> NodeHour {
        let mut hour = NodeHour { minutes: vec![Ended::default(); 60], ..NodeHour::default() };
        for (number, times, ms) in of {
            let numbers = hour.queues.entry(queue(*number)).or_default();
            numbers.ran.add(Duration::from_millis(*ms), *times);
            numbers.ended.succeeded += times;
            hour.minutes[3].succeeded += times;
        }
        hour
    }

    #[test]
    fn a_node_is_slow_beside_others_that_do_the_same() {
        let hours = Hours::from([
            ("slow".to_owned(), hour(&[(1, 30, 4_100), (2, 2, 10)])),
            ("fast".to_owned(), hour(&[(1, 20, 1_000)])),
            ("other".to_owned(), hour(&[(1, 20, 1_000), (3, 40, 60_000)])),
        ]);
        let of = |name: &str| Work::of(&hours, &doc! { "node": name });
        let slow = of("slow");
        let speed = slow.speed.unwrap();
        assert_eq!(speed.words(), "5.6 ×");
        assert_eq!(speed.pill().map(|pill| (pill.tone, pill.word)), Some(("bad", "slow")));
        assert_eq!((slow.ended().total(), slow.a_minute().as_str()), (32, "0.5"));
        assert_eq!(slow.ended().failed, 0);
        assert!(of("fast").speed.unwrap().pill().is_none());
        assert_eq!(of("away"), Work::default());
        assert_eq!(of("away").a_minute(), "0");
        let queues = OfQueue::all(&hours, &doc! { "node": "slow" });
        assert_eq!(queues.iter().map(|of| of.queue).collect::<Vec<_>>(), [queue(1), queue(2)]);
        assert_eq!(
            (queues[0].ended, queues[0].here[0].as_str(), queues[0].elsewhere[1].is_empty()),
            (30, "4.8 s", false)
        );
        // Nobody else did any of these, and they are few.
        assert_eq!((queues[1].speed, queues[1].elsewhere.concat()), (None, String::new()));
    }

    #[test]
    fn a_node_is_not_slow_for_milliseconds_unless_they_are_many() {
        let pill = |times: u64, here: u64, elsewhere: u64| {
            let hours = Hours::from([
                ("a".to_owned(), hour(&[(1, times, here)])),
                ("b".to_owned(), hour(&[(1, 50, elsewhere)])),
            ]);
            let node = doc! { "node": "a" };
            let of_node = Work::of(&hours, &node).speed.unwrap().pill();
            assert_eq!(of_node, OfQueue::all(&hours, &node)[0].speed.unwrap().pill(), "its only queue");
            of_node.map(|pill| pill.word)
        };
        assert_eq!(pill(50, 94, 20), None, "4.7 times as long, which nobody sees");
        assert_eq!(pill(50, 900, 200), None);
        assert_eq!(pill(50, 4_700, 1_000), Some("slow"));
        assert_eq!(pill(20_000, 94, 20), Some("slow"), "minutes of the hour");
    }

    #[test]
    fn a_load_above_the_number_of_processors_is_marked() {
        let tone = |load: f64| Load::of(Some(load), Some(2)).tone;
        assert_eq!([1.9, 2.0, 2.1, 4.0, 9.2].map(tone), ["", "", "busy", "busy", "bad"]);
        assert!(Load::of(Some(9.2), Some(2)).is_far_too_high());
        assert_eq!(Load::of(Some(1.256), Some(4)).words, "1.26 of 4");
        assert_eq!(Load::of(Some(1.256), None).words, "1.26");
        assert!(Load::of(None, Some(4)).words.is_empty());
    }
}
