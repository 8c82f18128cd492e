//! `drain`: how many tasks one DEN runs in a second.

use std::time::Duration;

use anyhow::{bail, ensure};
use bson::{Document, doc};
use disbatch_core::model::QueueId;
use disbatch_core::task::TaskOptions;
use futures::TryStreamExt;
use mongodb::Collection;
use tokio::time::Instant;

use crate::figure::{Load, params};
use crate::progress::Progress;
use crate::results::{Sample, Series};
use crate::statistics::rate;
use crate::world::World;
use crate::world::node::Node;

/// The name of the figure.
pub const NAME: &str = "drain";

/// How it is measured.
pub const METHOD: &str = "the tasks wait in a queue with threads 0 while one DEN runs; timed from setting threads \
    until no task is left that is queued, claimed or running. First and last tenth by the tasks' own mtime at \
    their end, without the way to the first one";

/// Over the whole drain.
pub static RATE: Series = Series { figure: NAME, key: "tasks_per_second", label: "tasks/s" };

/// Over the tasks that ended first.
pub static FIRST_TENTH: Series =
    Series { figure: NAME, key: "first_tenth_tasks_per_second", label: "tasks/s, first tenth" };

/// Over the tasks that ended last.
pub static LAST_TENTH: Series =
    Series { figure: NAME, key: "last_tenth_tasks_per_second", label: "tasks/s, last tenth" };

/// How often to look whether there is something left to do: one index entry is read each time.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How often to count for the display.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// If not one task ends for so long, something is broken.
const STALLED_AFTER: Duration = Duration::from_secs(120);

/// One drain, on a database and with a DEN of its own.
///
/// # Errors
/// A task does not succeed, the DEN ends, or nothing moves any more.
pub async fn measure(world: &World, load: Load, progress: &Progress) -> anyhow::Result<Vec<Sample>> {
    let mut node = world.node(NAME).await?;
    let measured = match drain(&mut node, load, progress).await {
        Ok(samples) => Ok(samples),
        Err(error) => Err(node.explain(&error)),
    };
    node.stop().await?;
    measured
}

async fn drain(node: &mut Node, load: Load, progress: &Progress) -> anyhow::Result<Vec<Sample>> {
    let queue = node.create_queue(0).await?;
    let params = (0..load.tasks).map(|_| params()).collect();
    node.store.submit_tasks(queue, params, &TaskOptions::default()).await?;
    let tasks: Collection<Document> = node.database.collection("tasks");
    let begun = Instant::now();
    node.set_threads(queue, load.threads).await?;
    wait_until_drained(node, (&tasks, queue), load.tasks, progress).await?;
    let seconds = begun.elapsed().as_secs_f64();
    check_all_succeeded(&tasks, load.tasks).await?;
    let ends = ends(&tasks).await?;
    let values = [(&RATE, rate(load.tasks, seconds))].into_iter().chain(tenths(&ends));
    Ok(values.filter_map(|(series, value)| Some(Sample { series, value: value? })).collect())
}

async fn wait_until_drained(
    node: &mut Node,
    (tasks, queue): (&Collection<Document>, QueueId),
    all: u32,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut counted = Instant::now();
    let (mut done, mut moved) = (0, counted);
    loop {
        look.tick().await;
        let unfinished = doc! { "queue": queue, "status": { "$in": [-2, -1, 0] } };
        if tasks.find_one(unfinished).projection(doc! { "_id": 1 }).await?.is_none() {
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
        progress.at(done, u64::from(all));
        ensure!(moved.elapsed() < STALLED_AFTER, "{done} of {all} tasks have ended, and no more do");
    }
}

/// A task that failed or was orphaned would make the rest look fast.
async fn check_all_succeeded(tasks: &Collection<Document>, all: u32) -> anyhow::Result<()> {
    let succeeded = tasks.count_documents(doc! { "status": 1 }).await?;
    if succeeded == u64::from(all) {
        return Ok(());
    }
    let example = tasks.find_one(doc! { "status": { "$ne": 1 } }).await?.unwrap_or_default();
    bail!("{succeeded} of {all} tasks succeeded; one that did not: {example}")
}

/// When each task ended, in milliseconds, in order.
async fn ends(tasks: &Collection<Document>) -> anyhow::Result<Vec<i64>> {
    let found: Vec<Document> =
        tasks.find(doc! {}).projection(doc! { "mtime": 1 }).await?.try_collect().await?;
    let mut ends = found
        .iter()
        .map(|task| Ok(task.get_datetime("mtime")?.timestamp_millis()))
        .collect::<anyhow::Result<Vec<i64>>>()?;
    ends.sort_unstable();
    Ok(ends)
}

/// The speed of the first and of the last tenth. Neither, if one took less than a millisecond.
fn tenths(ends: &[i64]) -> Vec<(&'static Series, Option<f64>)> {
    let tenth = ends.len() / 10;
    if tenth == 0 || ends.len() < 2 {
        return Vec::new();
    }
    let last = ends.len() - 1;
    let speed = |from: usize, to: usize| {
        let (count, millis) = (u32::try_from(to - from).ok()?, i32::try_from(ends[to] - ends[from]).ok()?);
        rate(count, f64::from(millis) / 1000.0)
    };
    match (speed(0, tenth), speed(last - tenth, last)) {
        (Some(first), Some(end)) => vec![(&FIRST_TENTH, Some(first)), (&LAST_TENTH, Some(end))],
        _ => Vec::new(), // One without the other cannot be compared.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_are_of_the_beginning_and_the_end() {
        // Ten a second, and one a second from the fiftieth on.
        let ends: Vec<i64> =
            (0..100).map(|n| if n < 50 { n * 100 } else { 5_000 + (n - 50) * 1000 }).collect();
        let values: Vec<_> = tenths(&ends).into_iter().map(|(series, value)| (series.key, value)).collect();
        assert_eq!(values, [(FIRST_TENTH.key, Some(10.0)), (LAST_TENTH.key, Some(1.0))]);
    }

    #[test]
    fn too_few_tasks_have_no_tenths() {
        assert!(tenths(&[]).is_empty());
        assert!(tenths(&[1, 2, 3]).is_empty());
        assert!(tenths(&[7; 20]).is_empty());
    }
}
