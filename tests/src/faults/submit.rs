//! Submits the tasks: half of them before anything breaks, the others through the DCI while it does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bson::Document;
use bson::oid::ObjectId;
use disbatch_core::gates::{AfterWhen, LockRequest};
use disbatch_core::model::TaskId;
use disbatch_core::task::{Once, SubmitError, TaskOptions};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::random::Random;
use super::work::Work;
use super::world::{How, Queue, World};

/// So many tasks are submitted at once.
const BATCH: usize = 20;

/// So many come one after the other.
const CHAIN: u32 = 6;

/// Those that fail at first do so less often. They may be tried more often than that.
const MOST_FAILURES: u32 = 3;

/// What tasks hold.
const LOCKS: [&[&str]; 5] =
    [&["one"], &["one/shared", "two"], &["one/shared"], &["places/2"], &["one", "two"]];

#[derive(Debug, Default)]
pub struct Submitted {
    /// Tasks whose submission was acknowledged: these must not be lost.
    pub ids: Vec<TaskId>,
    /// Submissions that were repeated for want of an answer.
    pub repeated: u64,
}

/// What a task is to do.
pub fn any_work(random: &mut Random) -> Work {
    let small = |random: &mut Random| u32::try_from(1 + random.below(5)).unwrap_or(1);
    let millis = |random: &mut Random, from: u64, to: u64| {
        u32::try_from(from + random.below(to - from)).unwrap_or_default()
    };
    match random.below(10) {
        0..=4 => Work { millis: 5, lines: small(random), fails: 0 },
        5..=6 => Work { millis: millis(random, 100, 500), lines: small(random), fails: 0 },
        7..=8 => Work { millis: millis(random, 1000, 3000), lines: small(random), fails: 0 },
        // Some 100 KB.
        _ => Work { millis: millis(random, 5, 300), lines: 1500, fails: 0 },
    }
}

/// A queue that may run twice as many tasks at once gets twice as many. Containers take too long for many.
pub fn any_queue<'a>(world: &'a World, random: &mut Random) -> Option<&'a Queue> {
    let mut quick = world.queues.iter().filter(|queue| queue.how != How::Container);
    let mut place = random.below(quick.clone().map(|queue| queue.usual).sum());
    quick.find(|queue| {
        let here = place < queue.usual;
        place = place.saturating_sub(queue.usual);
        here
    })
}

/// Submits `count` tasks directly.
pub async fn at_once(world: &World, count: usize, random: &mut Random) -> anyhow::Result<Submitted> {
    let mut submitted = Submitted::default();
    for number in 0..count.div_ceil(BATCH) {
        let Some(queue) = any_queue(world, random) else { break };
        let size = BATCH.min(count - number * BATCH);
        let params = (0..size).map(|_| any_work(random).params()).collect();
        submitted.ids.extend(world.store.submit_tasks(queue.id, params, &TaskOptions::default()).await?.ids);
    }
    Ok(submitted)
}

/// A task that takes a while, and fails so often at first.
fn a_while(random: &mut Random, fails: u32) -> Document {
    let millis = u32::try_from(30 + random.below(120)).unwrap_or(30);
    Work { millis, lines: 1, fails }.params()
}

/// Submits tasks that come after others: a chain that goes on however its tasks end, one that needs each to succeed, and a
/// task after several. Of the latter some fail at first and are tried again.
pub async fn with_dependencies(world: &World, random: &mut Random) -> anyhow::Result<Vec<TaskId>> {
    let mut ids = Vec::new();
    // Where a plugin does not outlive its task.
    for queue in world.queues.iter().filter(|queue| queue.requeues && queue.how != How::Container) {
        let chain = TaskOptions { chain: true, ..TaskOptions::default() };
        let however = TaskOptions { after_when: AfterWhen::Finished, ..chain.clone() };
        let params = (0..CHAIN).map(|_| a_while(random, 0)).collect();
        ids.extend(world.store.submit_tasks(queue.id, params, &however).await?.ids);
        let params = (0..CHAIN).map(|number| a_while(random, number % MOST_FAILURES)).collect();
        ids.extend(world.store.submit_tasks(queue.id, params, &chain).await?.ids);
        let params = (0..CHAIN).map(|number| a_while(random, number % MOST_FAILURES)).collect();
        let all = world.store.submit_tasks(queue.id, params, &TaskOptions::default()).await?.ids;
        let after = TaskOptions { after: all.clone(), ..TaskOptions::default() };
        ids.extend(all);
        ids.extend(world.store.submit_tasks(queue.id, vec![a_while(random, 0)], &after).await?.ids);
    }
    Ok(ids)
}

/// Submits `count` tasks with locks, spread over `time`. A submission that fails is repeated.
pub async fn with_locks(
    world: Arc<World>,
    count: u32,
    time: Duration,
    mut random: Random,
) -> anyhow::Result<Submitted> {
    let mut submitted = Submitted::default();
    for (number, locks) in (0..count).zip(LOCKS.into_iter().cycle()) {
        sleep(time / count.max(1)).await;
        let Some(queue) = any_queue(&world, &mut random) else { break };
        let locks = LockRequest::list(locks.iter().copied())?;
        let options = TaskOptions { locks, ..TaskOptions::default() };
        let millis = u32::try_from(100 + random.below(700))?;
        let params = vec![Work { millis, lines: 1, fails: 0 }.params()];
        once(&world, queue, (params, &options), &format!("locks {number}"), &mut submitted).await?;
    }
    Ok(submitted)
}

/// Submits `count` tasks that run in containers, spread over `time`, if there are any. A submission that fails is repeated.
pub async fn in_containers(
    world: Arc<World>,
    count: u32,
    time: Duration,
    mut random: Random,
) -> anyhow::Result<Submitted> {
    let mut submitted = Submitted::default();
    let queues: Vec<&Queue> = world.queues.iter().filter(|queue| queue.how == How::Container).collect();
    for number in 0..count {
        let Some(queue) = random.pick(&queues) else { break };
        sleep(time / count).await;
        let fails = u32::try_from(random.below(2))?;
        let millis = u32::try_from(random.below(1_500))?;
        let params = vec![Work { millis, lines: 5, fails }.params()];
        let key = format!("container {number}");
        once(&world, queue, (params, &TaskOptions::default()), &key, &mut submitted).await?;
    }
    Ok(submitted)
}

async fn once(
    world: &World,
    queue: &Queue,
    (params, options): (Vec<Document>, &TaskOptions),
    key: &str,
    submitted: &mut Submitted,
) -> anyhow::Result<()> {
    let once = Once::new(key.to_owned(), "the fault suite");
    loop {
        match world.store.submit_tasks_once(queue.id, params.clone(), options, &once).await {
            Ok(done) => {
                submitted.ids.extend(done.ids);
                return Ok(());
            }
            Err(SubmitError::Store(error)) if error.is_transient() => submitted.repeated += 1,
            Err(error) => return Err(error.into()),
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Submits `count` tasks through the DCI, spread over `time`, whatever happens to it. A submission without an
/// answer is repeated with its key until there is one.
pub async fn little_by_little(
    world: Arc<World>,
    count: usize,
    time: Duration,
    mut random: Random,
) -> anyhow::Result<Submitted> {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
    let mut submitted = Submitted::default();
    let batches = count.div_ceil(BATCH);
    for number in 0..batches {
        sleep(time / u32::try_from(batches)?).await;
        let Some(queue) = any_queue(&world, &mut random) else { break };
        let size = BATCH.min(count - number * BATCH);
        let params: Vec<Value> =
            (0..size).map(|_| Value::from(bson::Bson::from(any_work(&mut random).params()))).collect();
        let key = format!("batch {number}");
        let body = json!({ "queue": queue.name, "params": params, ".idempotency_key": key });
        let url = format!("{}/tasks", world.url);
        submitted.ids.extend(loop {
            match submit(&http, &url, &body).await? {
                Some(ids) => break ids,
                None => submitted.repeated += 1,
            }
            sleep(Duration::from_millis(200)).await;
        });
    }
    Ok(submitted)
}

/// `None`: there was no answer, or the DCI could not reach the database.
async fn submit(http: &reqwest::Client, url: &str, body: &Value) -> anyhow::Result<Option<Vec<TaskId>>> {
    let Ok(answer) = http.post(url).json(body).send().await else { return Ok(None) };
    let status = answer.status();
    let Ok(bytes) = answer.bytes().await else { return Ok(None) };
    if status.is_server_error() {
        return Ok(None);
    }
    anyhow::ensure!(status.is_success(), "the DCI refuses tasks: {}", String::from_utf8_lossy(&bytes));
    ids(&serde_json::from_slice(&bytes)?).map(Some)
}

fn ids(answer: &Value) -> anyhow::Result<Vec<TaskId>> {
    let of_class = answer.as_object().into_iter().flatten().next().map(|(_, value)| value);
    let inserted = of_class.and_then(|value| value.get("inserted")).and_then(Value::as_array);
    let id = |entry: &Value| {
        let text = entry.pointer("/_id/$oid").and_then(Value::as_str).context("an id is missing")?;
        Ok(TaskId(text.parse::<ObjectId>()?))
    };
    inserted.with_context(|| format!("no ids in {answer}"))?.iter().map(id).collect()
}
