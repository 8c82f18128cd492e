//! `latency`: how long a task waits when there is nothing else to do.

use std::time::Duration;

use anyhow::{Context, bail};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::task::TaskOptions;
use futures::StreamExt;
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use tokio::time::Instant;

use crate::figure::{Load, params};
use crate::progress::Progress;
use crate::results::{Sample, Series};
use crate::world::World;
use crate::world::node::Node;

/// The name of the figure.
pub const NAME: &str = "latency";

/// How it is measured.
pub const METHOD: &str = "one task at a time on an idle queue, 30 of them in the first round: from the server's \
    acknowledgement of the insert to the moment when a change stream tells of status 0 (running), or of \
    status 1 for the end. The stream's own delay is in the figure";

/// From insert to status 0.
pub static START: Series = Series { figure: NAME, key: "submit_to_start_ms", label: "submit to start, ms" };

/// From insert to the final status.
pub static END: Series = Series { figure: NAME, key: "submit_to_end_ms", label: "submit to end, ms" };

const SAMPLES: u32 = 30;

/// If a task is not started for so long, something is broken.
const STALLED_AFTER: Duration = Duration::from_secs(120);

type Changes = ChangeStream<ChangeStreamEvent<Document>>;

/// All samples, on a database and with a DEN of their own.
///
/// # Errors
/// A task does not succeed, or is not run at all.
pub async fn measure(world: &World, load: Load, progress: &Progress) -> anyhow::Result<Vec<Sample>> {
    let node = world.node(NAME).await?;
    let measured = match samples(&node, load, progress).await {
        Ok(samples) => Ok(samples),
        Err(error) => Err(node.explain(&error)),
    };
    node.stop().await?;
    measured
}

async fn samples(node: &Node, load: Load, progress: &Progress) -> anyhow::Result<Vec<Sample>> {
    let queue = node.create_queue(load.threads).await?;
    let of_interest = doc! { "$match": { "updateDescription.updatedFields.status": { "$gte": 0 } } };
    let mut changes = node.database.collection::<Document>("tasks").watch().pipeline([of_interest]).await?;
    let mut samples = Vec::new();
    for number in 0..SAMPLES {
        // The DEN becomes idle again. Pauses differ, so that no sample keeps step with its seconds.
        tokio::time::sleep(Duration::from_millis(u64::from(200 + number * 37 % 100))).await;
        let submitted = node.store.submit_tasks(queue, vec![params()], &TaskOptions::default()).await?;
        let acknowledged = Instant::now();
        let id = submitted.ids.first().context("nothing was submitted")?.0;
        for (series, status) in [(&START, 0), (&END, 1)] {
            wait_for(&mut changes, id, status).await?;
            samples.push(Sample { series, value: acknowledged.elapsed().as_secs_f64() * 1000.0 });
        }
        progress.at(u64::from(number + 1), u64::from(SAMPLES));
    }
    Ok(samples)
}

/// Waits until task `id` gets `status`, which must be the next one it gets.
async fn wait_for(changes: &mut Changes, id: ObjectId, status: i32) -> anyhow::Result<()> {
    let next = tokio::time::timeout(STALLED_AFTER, changes.next()).await;
    let event = next.context("a task is not run")?.context("the change stream has ended")??;
    let task = event.document_key.and_then(|key| key.get_object_id("_id").ok());
    let fields = event.update_description.map(|update| update.updated_fields).unwrap_or_default();
    match (task, fields.get_i32("status")) {
        (Some(changed), Ok(now)) if changed == id && now == status => Ok(()),
        _ => bail!("expected task {id} to get status {status}; instead {task:?}: {fields}"), // Anything else is wrong.
    }
}
