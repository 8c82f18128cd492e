//! The measurements at one number of tasks.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::model::{NodeName, Queue, Selector, whole_number};
use disbatch_core::task::{Ahead, Claim, Question, TaskOptions};
use futures::TryStreamExt;
use tokio::time::{Instant, sleep};

use super::series::{
    CLAIM, CLAIM_ONE, Cost, DATABASE, DEEP, DRAIN, FIRST_PAGE, LOOK, NEXT_PAGE, OPERATIONS, PLUGINS, QUEUES,
    WRITE,
};
use super::{Ground, NAME};
use crate::figure::contention::{claimant, write};
use crate::figure::footprint::operations;
use crate::results::Sample;
use crate::world::drain::{Plan, drain};
use crate::world::node::Node;
use crate::world::plugins::{TRUE, WARM};

/// Claims of one task.
const SINGLE: u32 = 800;

/// Claims of eight.
const EIGHTS: u32 = 200;

const REQUESTS: u32 = 200;
const LOOKS: u32 = 400;
const DRAINS: u32 = 3;
const DRAINED: u32 = 3_000;

const WINDOWS: u32 = 6;
const WINDOW: Duration = Duration::from_secs(4);

pub async fn everything(ground: &mut Ground<'_>, level: u32) -> anyhow::Result<Vec<Sample>> {
    let turn = ground.turn;
    let begin = |what: &str| turn.begin(&format!("{NAME}, {level} finished tasks: {what}"));
    begin("idle");
    let mut samples = idle(ground, level).await?;
    begin("claims");
    samples.splice(0..0, claims(ground.node, level).await?);
    begin("requests");
    samples.extend(requests(ground, level).await?);
    begin("drains");
    for _ in 0..DRAINS {
        let plan = Plan { plugin: WARM, params: doc! { "noreport": true }, tasks: DRAINED, width: 64 };
        let seconds = drain(ground.node, &plan, turn.progress).await?.seconds;
        samples.push(DRAIN.at(level).sample(seconds * 1e6 / f64::from(DRAINED)));
    }
    Ok(samples)
}

/// Claims as a DEN makes them, from a queue that nobody else claims from, by ones and by eights.
async fn claims(node: &Node, level: u32) -> anyhow::Result<Vec<Sample>> {
    let id = node.create_queue(TRUE, 0).await?;
    let params = (0..SINGLE + EIGHTS * 8).map(|_| doc! { "commands": "a" }).collect();
    node.store.submit_tasks(id, params, &TaskOptions::default()).await?;
    let queue = node.store.find_queue(&Selector::Id(id.0)).await?.context("the queue is gone")?;
    let mut claimer = Claimer { node, queue: &queue, ahead: Ahead::default() };
    let mut samples = Vec::new();
    for _ in 0..SINGLE {
        let (claims, took) = claimer.claim(1).await?;
        write(&node.store, &claims).await?;
        samples.push(CLAIM_ONE.at(level).sample(took));
    }
    for _ in 0..EIGHTS {
        let (claims, took) = claimer.claim(8).await?;
        samples.push(CLAIM.at(level).sample(took));
        let began = Instant::now();
        write(&node.store, &claims).await?;
        samples.push(WRITE.at(level).sample(micros(began)));
    }
    Ok(samples)
}

/// Claims by eights from a queue in which many more wait.
pub async fn deep_claims(node: &Node, queue: &Queue, level: u32) -> anyhow::Result<Vec<Sample>> {
    let mut claimer = Claimer { node, queue, ahead: Ahead::default() };
    let mut samples = Vec::new();
    for _ in 0..EIGHTS {
        let (claims, took) = claimer.claim(8).await?;
        samples.push(DEEP.at(level).sample(took));
        write(&node.store, &claims).await?;
    }
    Ok(samples)
}

struct Claimer<'a> {
    node: &'a Node,
    queue: &'a Queue,
    ahead: Ahead,
}

impl Claimer<'_> {
    /// So many claims, and the time that they took.
    async fn claim(&mut self, tasks: u64) -> anyhow::Result<(Vec<Claim>, f64)> {
        let (claimant, places): (_, Vec<u64>) = (claimant(0), (0..tasks).collect());
        let began = Instant::now();
        let batch = self.node.store.claim_tasks(self.queue, &claimant, &places, &mut self.ahead).await?;
        let took = micros(began);
        ensure!(u64::try_from(batch.claims.len())? == tasks, "{} tasks were claimed", batch.claims.len());
        Ok((batch.claims, took))
    }
}

async fn requests(ground: &Ground<'_>, level: u32) -> anyhow::Result<Vec<Sample>> {
    let queue = ground.queues.first().context("there are no queues")?;
    let first = format!("/tasks?queue={queue}&status=1&.order=-id&.limit=100");
    let page = ground.web.get(&first).await?;
    let last = page.as_array().and_then(|page| page.last()).and_then(|task| task["_id"]["$oid"].as_str());
    let next = format!("{first}&.after={}", last.context("there is no page")?);
    let following = ground.web.get(&next).await?;
    let tasks = following.as_array().map_or(0, Vec::len);
    ensure!(tasks == 100, "the next page has {tasks} tasks");
    let paths: [(Cost, &str); 4] =
        [(QUEUES, "/queues"), (PLUGINS, "/plugins"), (FIRST_PAGE, &first), (NEXT_PAGE, &next)];
    let mut samples = Vec::new();
    for number in 0..REQUESTS {
        for (cost, path) in paths {
            let began = Instant::now();
            ground.web.get(path).await?;
            samples.push(cost.at(level).sample(micros(began)));
        }
        ground.turn.progress.at(u64::from(number + 1), u64::from(REQUESTS));
    }
    Ok(samples)
}

/// What a DEN costs that has nothing to do. An audit of the counters falls into few of the windows.
async fn idle(ground: &Ground<'_>, level: u32) -> anyhow::Result<Vec<Sample>> {
    let node = &*ground.node;
    let mut samples = Vec::new();
    for _ in 0..WINDOWS {
        let (began, operations_before, spent_before) =
            (Instant::now(), operations(node).await?, spent(node).await?);
        sleep(WINDOW).await;
        let (counted, spent) =
            (operations(node).await? - operations_before, spent(node).await? - spent_before);
        let seconds = began.elapsed().as_secs_f64();
        let per_second = |number: i64| i32::try_from(number).map(|number| f64::from(number) / seconds);
        samples.push(OPERATIONS.at(level).sample(per_second(counted)?));
        samples.push(DATABASE.at(level).sample(per_second(spent)?));
    }
    let name = NodeName::new("bench");
    let lease = Duration::from_secs(30);
    let question = Question { claim_from: &ground.queues, queues: true, ..Question::new(&name, lease) };
    for _ in 0..LOOKS {
        let began = Instant::now();
        node.store.look_around(&question).await?;
        samples.push(LOOK.at(level).sample(micros(began)));
    }
    Ok(samples)
}

/// Microseconds that the server has spent so far on what a DEN reads and writes.
async fn spent(node: &Node) -> anyhow::Result<i64> {
    let mut sum = 0;
    for name in ["tasks", "queues", "nodes"] {
        let stats = [doc! { "$collStats": { "latencyStats": {} } }];
        let found = node.database.collection::<Document>(name).aggregate(stats).await?;
        for stats in found.try_collect::<Vec<_>>().await? {
            let stats = stats.get_document("latencyStats").context("the server does not measure itself")?;
            let latency = |kind: &str| {
                stats.get_document(kind).ok().and_then(|kind| kind.get("latency")).and_then(whole_number)
            };
            sum += ["reads", "writes", "commands"].into_iter().filter_map(latency).sum::<i64>();
        }
    }
    Ok(sum)
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}
