//! One task after the other, each alone on its node, until others can see that it has ended.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::model::TaskId;
use disbatch_core::task::TaskOptions;
use futures::TryStreamExt;
use mongodb::Collection;
use mongodb::change_stream::ChangeStream;
use tokio::time::{Instant, sleep, timeout};

use crate::progress::Progress;
use crate::world::node::Node;

/// How many tasks may run at once; one does.
const THREADS: u32 = 8;

/// If a task does not end for so long, something is broken.
const STALLED_AFTER: Duration = Duration::from_secs(120);

/// The milliseconds that each of `count` tasks took. One more comes first, which is not counted: whatever it is that runs it
/// has connections to make then.
pub async fn waits(
    node: &Node,
    (plugin, params): (&str, &Document),
    count: u32,
    progress: &Progress,
) -> anyhow::Result<Vec<f64>> {
    let queue = node.create_queue(plugin, THREADS).await?;
    let tasks: Collection<Document> = node.database.collection("tasks");
    let mut ends = tasks.watch().pipeline(of_ends()).await?.with_type::<Document>();
    let mut waits = Vec::new();
    for number in 0..=count {
        // The node becomes idle again. Pauses differ, so that no task keeps step with its looks.
        sleep(Duration::from_millis(u64::from(200 + number * 37 % 100))).await;
        let begun = Instant::now();
        let submitted = node.store.submit_tasks(queue, vec![params.clone()], &TaskOptions::default()).await?;
        let task = *submitted.ids.first().context("there is no task")?;
        timeout(STALLED_AFTER, until_ended(&mut ends, task)).await.context("a task does not end")??;
        waits.push(begun.elapsed().as_secs_f64() * 1000.0);
        let ended = tasks.find_one(doc! { "_id": task }).await?.context("the task is gone")?;
        ensure!(ended.get_i32("status")? == 1, "a task did not succeed: {ended}");
        progress.at(u64::from(number), u64::from(count));
    }
    waits.remove(0);
    Ok(waits)
}

async fn until_ended(ends: &mut ChangeStream<Document>, task: TaskId) -> anyhow::Result<()> {
    loop {
        let end = ends.try_next().await?.context("the change stream has ended")?;
        if end.get_document("documentKey")?.get_object_id("_id")? == task.0 {
            return Ok(());
        }
    }
}

/// The server tells of ends alone, and of these no more than whose they are.
fn of_ends() -> [Document; 2] {
    let ended = || doc! { "$exists": true, "$nin": [-2, -1, 0] };
    let of_interest = doc! { "$or": [
        { "updateDescription.updatedFields.status": ended() },
        // Where so much changes that the server notes all of it.
        { "operationType": "replace", "fullDocument.status": ended() },
    ] };
    [doc! { "$match": of_interest }, doc! { "$project": { "_id": 1, "documentKey": 1 } }]
}
