//! `pages`: how long people wait for the pages, with many tasks and queues.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::QueueId;
use disbatch_core::queue::new_queue_id;
use futures::FutureExt;
use tokio::time::{Instant, interval};

use crate::compare::{Finding, Goal};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::world::Kind;
use crate::world::fill::{self, fill};
use crate::world::node::Node;
use crate::world::plugins::TRUE;
use crate::world::web::Web;

const NAME: &str = "pages";

const METHOD: &str = "a DEN and a DCI on a database with 1,000,000 finished tasks in 200 queues, ten more waiting in each, and all indexes: 50 times \
    each page, one request at a time over one connection, asked for as HTML. Look at the p95";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::First,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const QUEUES: u32 = 200;
const FINISHED_EACH: u32 = 5_000;
const WAITING_EACH: u32 = 10;
const REQUESTS: u32 = 50;

/// How often to look whether everything is counted, and for how long.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(300);

/// What it may take, in milliseconds.
const GOAL: f64 = 50.0;

static OVERVIEW: Series = Series::fixed(NAME, "overview_ms", "overview, ms");
static QUEUE: Series = Series::fixed(NAME, "queue_ms", "a queue, ms");
static TASKS: Series = Series::fixed(NAME, "tasks_ms", "newest tasks of all queues, ms");
static FAILED: Series = Series::fixed(NAME, "failed_ms", "failed tasks of all queues, ms");
static TODAY: Series = Series::fixed(NAME, "today_ms", "failed tasks of one queue, of today, ms");
static TASK: Series = Series::fixed(NAME, "task_ms", "a task, ms");
static NODES: Series = Series::fixed(NAME, "nodes_ms", "nodes, ms");
static SCHEDULES: Series = Series::fixed(NAME, "schedules_ms", "schedules, ms");
static LOCKS: Series = Series::fixed(NAME, "locks_ms", "locks, ms");
static AUDIT: Series = Series::fixed(NAME, "audit_ms", "audit, ms");

static ALL: [&Series; 10] =
    [&OVERVIEW, &QUEUE, &TASKS, &FAILED, &TODAY, &TASK, &NODES, &SCHEDULES, &LOCKS, &AUDIT];

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let node = Node::start(&setup).await?;
    node.finish(async |node| {
        let queues = fill_queues(turn, node).await?;
        // The last is one whose tasks have failed.
        let queue = *queues.last().context("there is no queue")?;
        let tasks = node.database.collection::<Document>("tasks");
        let failed = tasks.find_one(doc! { "queue": queue, "status": 2 }).await?;
        let task = failed.context("no task has failed")?.get_object_id("_id")?;
        let web = turn.world.web_beside(&setup).await?;
        count(node, &web, &queues).await?;
        let measured = requests(turn, &web, queue, task).await;
        // Before its database is dropped.
        web.end().await?;
        let samples = measured?;
        turn.end(&samples);
        Ok(samples)
    })
    .await
}

async fn fill_queues(turn: Turn<'_>, node: &Node) -> anyhow::Result<Vec<QueueId>> {
    turn.begin(&format!("{NAME}: filling"));
    let mut queues = Vec::new();
    for number in 0..QUEUES {
        let queue = new_queue_id();
        node.store
            .insert_queue(doc! { "_id": queue, "name": format!("shown{number}"), "plugin": TRUE })
            .await?;
        queues.push(queue);
    }
    for (each, kind) in [(FINISHED_EACH, fill::Kind::Finished), (WAITING_EACH, fill::Kind::Queued)] {
        fill(&node.database, &queues, each, kind, turn.progress).await?;
    }
    node.admin().run_command(doc! { "fsync": 1 }).await?;
    Ok(queues)
}

/// Has what was filled in counted, as if Disbatch had written it.
async fn count(node: &Node, web: &Web, queues: &[QueueId]) -> anyhow::Result<()> {
    web.post("/counters/audit").await?;
    let begun = Instant::now();
    let mut looks = interval(LOOK_EVERY);
    let expected = Some(u64::from(FINISHED_EACH + WAITING_EACH));
    loop {
        let totals = node.store.read_counters().await?;
        let is_right =
            |queue: &QueueId| totals.as_ref().and_then(|totals| totals.of_queue(*queue)) == expected;
        if queues.iter().all(is_right) {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "the tasks are not counted after {} s", PATIENCE.as_secs());
        looks.tick().await;
    }
}

/// Where each page is, and words without which it would be fast for nothing.
fn page(series: &Series, queue: QueueId, task: ObjectId) -> (String, String) {
    let last = format!("shown{}", QUEUES - 1);
    match series.key.as_ref() {
        "queue_ms" => (format!("/queues/{queue}"), last),
        "tasks_ms" => ("/tasks".to_owned(), "shown".to_owned()),
        "failed_ms" => ("/tasks?status=2".to_owned(), last),
        "today_ms" => (format!("/tasks?queue={queue}&status=2&.created=today"), last),
        "task_ms" => (format!("/tasks/{task}"), last),
        "nodes_ms" => ("/nodes".to_owned(), "bench_pages".to_owned()),
        "schedules_ms" => ("/schedules".to_owned(), "schedule".to_owned()),
        "locks_ms" => ("/locks".to_owned(), "lock".to_owned()),
        "audit_ms" => ("/audit".to_owned(), "audit".to_owned()),
        _ => ("/".to_owned(), last),
    }
}

async fn requests(turn: Turn<'_>, web: &Web, queue: QueueId, task: ObjectId) -> anyhow::Result<Vec<Sample>> {
    turn.begin(&format!("{NAME}: reading"));
    let mut samples = Vec::new();
    for number in 0..=REQUESTS {
        for series in ALL {
            let (path, words) = page(series, queue, task);
            let begun = Instant::now();
            let html = web.page(&path).await?;
            let took = begun.elapsed().as_secs_f64() * 1000.0;
            ensure!(html.contains(&words), "{path} says nothing of {words}");
            // The first one finds out what the following ones know.
            if number > 0 {
                samples.push(series.sample(took));
            }
        }
        turn.progress.at(u64::from(number), u64::from(REQUESTS));
    }
    Ok(samples)
}

fn findings(results: &Results) -> Vec<Finding> {
    let finding = |series: &&Series| {
        Finding::new(series.key.clone(), series.label.clone(), results.values(series).to_vec())
            .with(Goal::P95AtMost(GOAL))
    };
    ALL.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_asked_for_and_the_slow_ones_count() {
        let paths: std::collections::BTreeSet<String> =
            ALL.iter().map(|series| page(series, new_queue_id(), ObjectId::new()).0).collect();
        assert_eq!(paths.len(), ALL.len());
        let mut results = Results::default();
        results.add((0..20).map(|number| TASK.sample(if number < 18 { 4.0 } else { 80.0 })).collect());
        results.add(vec![LOCKS.sample(4.0)]);
        let reached: Vec<_> = findings(&results).iter().filter_map(Finding::is_reached).collect();
        assert_eq!(reached, [false, true]);
    }
}
