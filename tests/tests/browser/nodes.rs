//! Nodes: which is slow, and what runs there.

use anyhow::ensure;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_tests::browser::visit;
use disbatch_tests::{World, eventually};
use serde_json::json;

use crate::site::{Site, few};

/// A node that is alive, on which runs of this length have ended.
async fn node(world: &World, name: &str, load: f64, (queue, bucket): (ObjectId, u8)) -> anyhow::Result<()> {
    let nodes = world.database().collection::<Document>("nodes");
    let now = world.store().server_time().await?;
    let stats = doc! { "load": load, "cpus": 2_i64 };
    nodes.insert_one(doc! {
        "node": name, "instance": name, "state": "alive", "seen": now, "timestamp": now, "lease_ms": 600_000, "stats": stats,
    }).await?;
    let minute = DateTime::from_millis(now.timestamp_millis() / 60_000 * 60_000 - 120_000);
    let queues =
        doc! { queue.to_hex(): { "succeeded": 20_i64, "failed": 3_i64, format!("r{bucket}"): 23_i64 } };
    let series = world.database().collection::<Document>("series");
    series.insert_one(doc! { "_id": { "node": name, "at": minute }, "at": minute, "queues": queues }).await?;
    Ok(())
}

#[tokio::test]
async fn one_click_says_which_node_is_slow() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "reports", "threads": 0 }).await?.0;
    for (name, load, bucket) in [("node1", 0.5, 20), ("node2", 9.2, 26), ("node3", 1.0, 20)] {
        node(world, name, load, (queue, bucket)).await?;
    }
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.until_text("The load of node node2 is 9.20 of 2 processors.").await?;
        page.click("link", "Nodes").await?;
        let slow = browser.part("tr", "node2");
        slow.until_text("8.0 ×").await?;
        slow.until_text("slow").await?;
        slow.until_text("3 failed").await?;
        ensure!(!browser.part("tr", "node1").text().await?.contains("slow"));
        few(browser, 1)?;
        page.click("link", "node2").await?;
        let work = browser.part("#node-work", "");
        work.until_text("8.0 ×").await?;
        work.until_there("link", "reports").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_node_shows_what_it_runs_and_what_failed_there() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports", "threads": 2 }).await?;
    let commands = ["exit 3", "while :; do sleep 0.1; done"].map(|command| doc! { "command": command });
    let ids = world.submit(queue, commands.into()).await?;
    let _den = world.den_at_work("node1").await?;
    world.until_status(ids[0], 2).await?;
    world.until_status(ids[1], 0).await?;
    visit(async |browser| {
        browser.open(&site.url("/nodes/node1")).await?;
        browser.part("#node-tasks", "").until_text("while :; do").await?;
        browser.part("#node-failures", "").until_text("exit code 3").await?;
        // What has ended is noted within seconds.
        browser.part("#node-work", "").until_text("reports").await?;
        browser.page().click("link", "All its tasks").await?;
        browser.page().until_text("exit 3").await
    })
    .await?;
    let series = world.database().collection::<Document>("series");
    let noted = doc! { "_id.node": "node1", format!("queues.{queue}.failed"): 1_i64 };
    eventually("what has ended on the node", async || Ok(series.find_one(noted.clone()).await?)).await?;
    site.end().await
}

#[tokio::test]
async fn all_pages_tell_the_same_of_a_node_that_died() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "reports", "threads": 0 }).await?.0;
    let long_ago = DateTime::from_millis(world.store().server_time().await?.timestamp_millis() - 3_600_000);
    // The last that it has said is that nothing ran.
    world.database().collection::<Document>("nodes").insert_one(doc! {
        "node": "node1", "instance": "node1", "seen": long_ago, "timestamp": long_ago, "lease_ms": 1_000, "running": 0,
    }).await?;
    world.tasks().insert_one(doc! { "queue": queue, "status": 0, "node": "node1", "params": {} }).await?;
    visit(async |browser| {
        for path in ["/", "/nodes"] {
            browser.open(&site.url(path)).await?;
            let row = "return [...document.querySelectorAll('#nodes td[data-label=Running]')].map((cell) => cell.textContent).join()";
            let running = browser.script(row, json!([])).await?;
            ensure!(running == "1", "{path} says that {running} run");
        }
        browser.page().click("link", "node1").await?;
        let card = browser.part("#node-facts", "");
        card.until_text("Running").await?;
        let figure = "return document.querySelector('#node-facts .figure').textContent";
        ensure!(browser.script(figure, json!([])).await? == "1", "the page of the node");
        Ok(())
    })
    .await?;
    site.end().await
}
