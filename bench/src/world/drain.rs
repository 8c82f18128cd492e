//! A drain of ours: tasks wait beside an idle DEN, are released, and end.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::task::TaskOptions;
use futures::TryStreamExt;
use mongodb::Collection;
use tokio::time::{Instant, interval, sleep};

use super::node::Node;
use super::processes::{Cpu, server_pid};
use crate::progress::Progress;
use crate::statistics::rate;

/// How often to look whether the last task has ended.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// How often to count for the display, which costs the server some 20 ms.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// If not one task ends for so long, something is broken.
const STALLED_AFTER: Duration = Duration::from_secs(120);

/// How long the tasks wait before they are released, so that the DEN is idle again.
pub const REST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Plan<'a> {
    pub plugin: &'a str,
    pub params: Document,
    pub tasks: u32,
    /// How many at once.
    pub width: u32,
}

#[derive(Debug, Clone)]
pub struct Drained {
    /// From the release to the end of the last task.
    pub seconds: f64,
    /// When each task ended, in milliseconds, in order; without those that made the node warm.
    pub ends: Vec<i64>,
    /// What the node and the server have used for it.
    pub cpu: Cpu,
}

/// Makes the node warm with twice as many tasks as run at once, then drains as planned.
pub async fn drain(node: &mut Node, plan: &Plan<'_>, progress: &Progress) -> anyhow::Result<Drained> {
    let ready = prepare(node, plan, progress).await?;
    release(node, ready, plan, progress).await
}

/// Tasks that wait for their release.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    queue: QueueId,
    first: TaskId,
    last: TaskId,
}

/// Makes the node warm with twice as many tasks as run at once, and submits those of the plan.
pub async fn prepare(node: &mut Node, plan: &Plan<'_>, progress: &Progress) -> anyhow::Result<Ready> {
    let queue = node.create_queue(plan.plugin, 0).await?;
    prepare_in(node, queue, plan, progress).await
}

/// The same in a queue that is there, and lets no task run now.
pub async fn prepare_in(
    node: &mut Node,
    queue: QueueId,
    plan: &Plan<'_>,
    progress: &Progress,
) -> anyhow::Result<Ready> {
    let first = Plan { tasks: plan.width * 2, ..plan.clone() };
    let ready = submit(node, queue, &first).await?;
    release(node, ready, &first, progress).await?;
    node.set_threads(queue, 0).await?;
    // That holds for all that is started a second later.
    sleep(REST).await;
    submit(node, queue, plan).await
}

async fn submit(node: &Node, queue: QueueId, plan: &Plan<'_>) -> anyhow::Result<Ready> {
    let tasks: Collection<Document> = node.database.collection("tasks");
    let params = (0..plan.tasks).map(|_| plan.params.clone()).collect();
    let ids = node.store.submit_tasks(queue, params, &TaskOptions::default()).await?.ids;
    let (Some(&first), Some(&last)) = (ids.iter().min(), ids.iter().max()) else {
        bail!("there are no tasks")
    };
    sleep(REST).await;
    let early = tasks.find_one(doc! { "_id": { "$gte": first.0 }, "status": { "$ne": -2 } }).await?;
    ensure!(early.is_none(), "a task has left its queue before it was released");
    Ok(Ready { queue, first, last })
}

/// Lets the tasks go, and waits until all of them have ended.
pub async fn release(
    node: &mut Node,
    ready: Ready,
    plan: &Plan<'_>,
    progress: &Progress,
) -> anyhow::Result<Drained> {
    let Ready { queue, first, last } = ready;
    let tasks: Collection<Document> = node.database.collection("tasks");
    let mongod = server_pid(&node.database).await?;
    let before = Cpu::of(node.pid(), mongod)?;
    let begun = Instant::now();
    node.set_threads(queue, plan.width).await?;
    wait_until_drained(node, (&tasks, queue, last.0), progress).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = Cpu::of(node.pid(), mongod)?.since(before);
    Ok(Drained { seconds, ends: ends(&tasks, &first, plan.tasks).await?, cpu })
}

/// Looks at the task that was submitted last, which costs next to nothing, and then for any that is left: to find
/// the first of the unfinished tasks, the server steps over all that have left the queue.
async fn wait_until_drained(
    node: &mut Node,
    (tasks, queue, last): (&Collection<Document>, QueueId, ObjectId),
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut look = interval(LOOK_EVERY);
    let mut counted = Instant::now();
    let (mut done, mut moved) = (0, counted);
    let unfinished = doc! { "queue": queue, "status": { "$in": [-2, -1, 0] } };
    let all = tasks.count_documents(doc! { "queue": queue }).await?;
    loop {
        look.tick().await;
        let ended = tasks.find_one(doc! { "_id": last, "status": { "$gte": 1 } });
        if ended.projection(doc! { "_id": 1 }).await?.is_some()
            && tasks.find_one(unfinished.clone()).projection(doc! { "_id": 1 }).await?.is_none()
        {
            return Ok(());
        }
        if counted.elapsed() < COUNT_EVERY {
            continue;
        }
        counted = Instant::now();
        node.check_alive()?;
        let now_done = tasks.count_documents(doc! { "queue": queue, "status": { "$gte": 1 } }).await?;
        if now_done != done {
            (done, moved) = (now_done, counted);
        }
        progress.at(done, all);
        ensure!(moved.elapsed() < STALLED_AFTER, "{done} of {all} tasks have ended, and no more do");
    }
}

/// When each task since `first` ended, in milliseconds, in order. A task that failed or was orphaned would make the
/// rest look fast.
async fn ends(tasks: &Collection<Document>, first: &TaskId, all: u32) -> anyhow::Result<Vec<i64>> {
    let mut found =
        tasks.find(doc! { "_id": { "$gte": first.0 } }).projection(doc! { "mtime": 1, "status": 1 }).await?;
    let mut ends = Vec::new();
    while let Some(task) = found.try_next().await? {
        ensure!(task.get_i32("status")? == 1, "a task did not succeed: {task}");
        ends.push(task.get_datetime("mtime").context("a task has no time")?.timestamp_millis());
    }
    ensure!(u32::try_from(ends.len())? == all, "{} of {all} tasks are there", ends.len());
    ends.sort_unstable();
    Ok(ends)
}

/// The speed of the first and of the last tenth. Neither, if one took less than a millisecond.
pub fn tenths(ends: &[i64]) -> Option<(f64, f64)> {
    let tenth = ends.len() / 10;
    let last = ends.len().checked_sub(1).filter(|_| tenth > 0)?;
    let speed = |from: usize, to: usize| {
        let (count, millis) = (u32::try_from(to - from).ok()?, i32::try_from(ends[to] - ends[from]).ok()?);
        rate(count, f64::from(millis) / 1000.0)
    };
    Some((speed(0, tenth)?, speed(last - tenth, last)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_are_of_the_beginning_and_the_end() {
        // Ten a second, and one a second from the fiftieth on.
        let ends: Vec<i64> =
            (0..100).map(|n| if n < 50 { n * 100 } else { 5_000 + (n - 50) * 1000 }).collect();
        assert_eq!(tenths(&ends), Some((10.0, 1.0)));
    }

    #[test]
    fn too_few_tasks_have_no_tenths() {
        assert_eq!(tenths(&[]), None);
        assert_eq!(tenths(&[1, 2, 3]), None);
        assert_eq!(tenths(&[7; 20]), None);
    }
}
