//! What has happened before: a week of tasks that have ended, and the numbers over time that DENs would have noted.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::QueueId;
use disbatch_core::series::Numbers;

use crate::World;
use crate::faults::random::Random;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A week.
const HOURS: i64 = 7 * 24;

/// What goes on in a queue.
pub(super) struct Habit {
    pub queue: QueueId,
    /// How many tasks end in an hour of work.
    pub hourly: u64,
    /// Of a hundred, so many fail.
    pub failing: u64,
    /// How long one takes, usually: milliseconds.
    pub run_ms: u64,
    /// The parameters of the n-th.
    pub params: fn(u64) -> Document,
    /// What each prints.
    pub stdout: &'static str,
}

/// A task that has ended.
struct Past {
    queue: QueueId,
    status: i32,
    node: &'static str,
    params: Document,
    stdout: &'static str,
    begun: i64,
    ended: i64,
    waited: i64,
}

/// Writes what has happened in a week before `now`.
pub(super) async fn fill(world: &World, habits: &[Habit], nodes: &[&'static str]) -> anyhow::Result<()> {
    let now = world.store().now().timestamp_millis();
    let mut random = Random::new(1977);
    let mut past = Vec::new();
    for habit in habits {
        past.extend(tasks_of(habit, nodes, now, &mut random));
    }
    past.sort_by_key(|task| task.ended);
    let documents: Vec<Document> = (0_u32..).zip(&past).map(|(number, task)| task.document(number)).collect();
    world.tasks().insert_many(documents).await?;
    let series = world.database().collection::<Document>("series");
    series.insert_many(numbers(&past)).await?;
    series.insert_many(samples(nodes, now, &mut random)).await?;
    Ok(())
}

fn tasks_of(habit: &Habit, nodes: &[&'static str], now: i64, random: &mut Random) -> Vec<Past> {
    let mut tasks = Vec::new();
    for hour in 1..=HOURS {
        // More by day than by night, and the same at each time of a day.
        let by_day = u64::try_from(12 - (12 - (now / HOUR - hour).rem_euclid(24)).abs()).unwrap_or(0);
        let many = habit.hourly * (3 + by_day) / 12;
        for _ in 0..(many + random.below(2)) {
            let signed = |number: u64| i64::try_from(number).unwrap_or(0);
            let ended = now - hour * HOUR + signed(random.below(3_600_000)) - 2 * SECOND;
            let ran =
                signed(habit.run_ms / 2 + random.below(habit.run_ms) + random.below(habit.run_ms / 2 + 1));
            let number = random.next() % 90_000;
            tasks.push(Past {
                queue: habit.queue,
                status: if random.below(100) < habit.failing { 2 } else { 1 },
                node: random.pick(nodes).copied().unwrap_or_default(),
                params: (habit.params)(number),
                stdout: habit.stdout,
                begun: ended - ran,
                ended,
                waited: signed(20 + random.below(400) * random.below(12)),
            });
        }
    }
    tasks
}

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

impl Past {
    fn document(&self, number: u32) -> Document {
        let made = self.begun - self.waited;
        let seconds = u32::try_from(made / SECOND).unwrap_or(0);
        let [_, counter @ ..] = number.to_be_bytes();
        let entry = |status: i32, time: i64| doc! { "at": at(time), "status": status, "attempt": 1, "node": self.node };
        let failed = self.status == 2;
        doc! {
            "_id": ObjectId::from_parts(seconds, *b"past!", counter),
            "queue": self.queue,
            "status": self.status,
            "node": self.node,
            "params": &self.params,
            "stdout": self.stdout,
            "stderr": if failed { Bson::from("connection reset by peer\n") } else { Bson::Null },
            "ctime": at(made),
            "mtime": at(self.ended),
            "started": at(self.begun),
            "attempt": 1,
            "complete": true,
            "exit": { "code": i32::from(failed), "duration": seconds_of(self.ended - self.begun) },
            "history": [entry(-1, self.begun), entry(0, self.begun), entry(self.status, self.ended)],
        }
    }
}

fn seconds_of(millis: i64) -> f64 {
    i32::try_from(millis).map_or(0.0, |millis| f64::from(millis) / 1000.0)
}

/// The documents of `series`, of each queue and of all together.
fn numbers(past: &[Past]) -> Vec<Document> {
    let mut minutes: BTreeMap<(Option<QueueId>, i64), Numbers> = BTreeMap::new();
    let minute = |time: i64| time - time.rem_euclid(MINUTE);
    for task in past {
        for queue in [Some(task.queue), None] {
            let begun = minutes.entry((queue, minute(task.begun))).or_default();
            begun.waited.add(duration(task.waited), 1);
            let ended = minutes.entry((queue, minute(task.ended))).or_default();
            ended.ran.add(duration(task.ended - task.begun), 1);
            if task.status == 1 {
                ended.ended.succeeded += 1;
            } else {
                ended.ended.failed += 1;
            }
        }
    }
    let document = |((queue, minute), numbers): ((Option<QueueId>, i64), Numbers)| {
        let mut document =
            doc! { "_id": { "queue": queue.map(|id| id.0), "at": at(minute) }, "at": at(minute) };
        let stored = |number: u64| Bson::Int64(i64::try_from(number).unwrap_or(i64::MAX));
        document.extend(numbers.fields().map(|(name, number)| (name, stored(number))));
        document
    };
    minutes.into_iter().map(document).collect()
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// What the nodes were like in the last day.
fn samples(nodes: &[&str], now: i64, random: &mut Random) -> Vec<Document> {
    let mut samples = Vec::new();
    for node in nodes {
        for minute in 1..=24 * 60 {
            let time = now - now.rem_euclid(MINUTE) - minute * MINUTE;
            let running = random.below(5);
            let load = 0.2 + 0.3 * f64::from(u32::try_from(running + random.below(2)).unwrap_or(0));
            samples.push(doc! {
                "_id": { "node": node, "at": at(time) },
                "at": at(time),
                "running": i64::try_from(running).unwrap_or(0),
                "load": load,
                "memory_available": i64::try_from((11_u64 << 30) - running * (300 << 20) - random.below(80 << 20)).unwrap_or(0),
            });
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_counts_in_its_queue_and_in_all() {
        let queue = QueueId(ObjectId::from_bytes([7; 12]));
        let task = Past {
            queue,
            status: 2,
            node: "n",
            params: doc! {},
            stdout: "",
            begun: 70_000,
            ended: 130_000,
            waited: 5,
        };
        let documents = numbers(&[task]);
        let of = |queue: Option<QueueId>, minute: i64, fields: Document| {
            let at = at(minute);
            let mut document = doc! { "_id": { "queue": queue.map(|id| id.0), "at": at }, "at": at };
            document.extend(fields);
            document
        };
        let begun = doc! { "wait_ms": 5_i64, "w5": 1_i64 };
        let ended = doc! { "failed": 1_i64, "run_ms": 60_000_i64, "r32": 1_i64 };
        let of_each = |queue| [of(queue, 60_000, begun.clone()), of(queue, 120_000, ended.clone())];
        assert_eq!(documents, [of_each(None), of_each(Some(queue))].concat());
    }
}
