//! Versions of a queue's plugin: what the panel shows, and what its buttons do.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::visit;
use disbatch_tests::{World, eventually};

use crate::site::Site;

async fn until_queue(world: &World, what: bson::Document) -> anyhow::Result<()> {
    let queues = world.database().collection::<bson::Document>("queues");
    let name = format!("a queue with {what}");
    eventually(&name, async || Ok(queues.find_one(what.clone()).await?)).await.map(drop)
}

/// A node that says that it has two versions of the plugin `Mail`.
async fn node(world: &World) -> anyhow::Result<()> {
    let now = world.store().server_time().await?;
    let node = doc! {
        "node": "n9", "instance": "i", "state": "alive", "seen": now, "timestamp": now, "lease_ms": 600_000_i64,
        "plugins": ["Mail"], "plugin_versions": ["Mail@1", "Mail@2"],
    };
    world.database().collection::<bson::Document>("nodes").insert_one(node).await?;
    Ok(())
}

#[tokio::test]
async fn a_version_is_tried_and_made_that_of_all_and_rolled_back() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    node(world).await?;
    let queue = world.queue("Mail", doc! { "name": "mail", "threads": 1, "version": "1" }).await?;
    visit(async |browser| {
        browser.open(&site.url("/queues/mail")).await?;
        let page = browser.page();
        page.until_text("Its tasks are run by version 1 of its plugin").await?;
        page.click("button", "Try 2 on 5 %").await?;
        until_queue(world, doc! { "name": "mail", "canary.version": "2", "canary.share": 0.05 }).await?;
        page.until_text("Version 2, 5 % of the tasks").await?;
        page.until_text("It is not judged yet: 20 more of its attempts must end before that.").await?;
        let violations = browser.violations().await?;
        ensure!(violations.is_empty(), "{violations:?}");
        page.click("button", "Try 25 % instead").await?;
        until_queue(world, doc! { "name": "mail", "canary.share": 0.25 }).await?;
        page.until_text("Version 2, 25 % of the tasks").await?;
        page.click("button", "Make 2 the version of all").await?;
        let of_all = doc! { "name": "mail", "version": "2", "canary": { "$exists": false } };
        until_queue(world, of_all).await?;
        page.until_text("Its tasks are run by version 2 of its plugin").await?;
        page.click("button", "Run all with 1").await?;
        until_queue(world, doc! { "name": "mail", "version": "1" }).await?;

        // What is rolled back, and a version that nobody has.
        page.until_text("Its tasks are run by version 1 of its plugin").await?;
        page.click("button", "Try 2 on 50 %").await?;
        page.until_text("Version 2, 50 % of the tasks").await?;
        page.click("button", "Roll back").await?;
        until_queue(world, doc! { "name": "mail", "version": "1", "canary": { "$exists": false } }).await?;
        world.update_queue(queue, doc! { "version": "3" }).await?;
        page.until_text("no node has it").await
    })
    .await?;
    site.end().await
}
