//! New versions of plugins: a queue tries one with a part of its tasks, and tasks of another one have shadows.

use bson::{Document, doc};
use disbatch_core::model::QueueId;
use serde_json::json;

use crate::{Dci, World, eventually};

/// The queue of the shadows.
const SHADOWS: &str = "imports-next";

/// How many tasks have ended before the first picture, of which a quarter is of the canary.
const BILLS: i64 = 96;

/// Sets what is tried, and waits until it can be judged.
pub(super) async fn prepare(world: &World, dci: &Dci, invoices: QueueId) -> anyhow::Result<()> {
    world.queue("Import::Orders", doc! { "name": SHADOWS, "threads": 2, "version": "1.3.0" }).await?;
    let shadow = json!({ "version": "1.2.0", "shadow": { "queue": SHADOWS, "share": 1 } });
    dci.posted("/queues/imports", &shadow).await?;
    let canary = json!({ "version": "4.0.1", "canary": { "version": "5.0.0", "share": 0.25 }, "threads": 8 });
    dci.posted("/queues/invoices", &canary).await?;
    let bill = |n| doc! { "customer": format!("C-{n}"), "month": "2026-10" };
    world.submit(invoices, (30_000..30_000 + BILLS).map(bill).collect()).await?;
    eventually("all attempts to be counted", || async {
        let now = dci.get("/queues/invoices?.details=1").await?["canary_now"].clone();
        let ended = [&now["ended"], &now["others_ended"]].map(|ended| ended.as_i64().unwrap_or(0));
        Ok((ended[0] + ended[1] >= BILLS).then_some(()))
    })
    .await?;
    dci.posted("/queues/invoices", &json!({ "threads": 2 })).await.map(drop)
}

/// Waits until shadows have ended, and none is to come.
pub(super) async fn until_compared(world: &World) -> anyhow::Result<()> {
    let queues = world.database().collection::<Document>("queues");
    eventually("all shadows to have ended", || async {
        let Some(queue) = queues.find_one(doc! { "name": SHADOWS }).await? else { return Ok(None) };
        let shadows = QueueId(queue.get_object_id("_id")?);
        let ended = world.count(shadows, doc! { "status": { "$gte": 1 } }).await?;
        let all = world.count(shadows, doc! {}).await?;
        Ok((ended == all && ended > 8).then_some(()))
    })
    .await
}
