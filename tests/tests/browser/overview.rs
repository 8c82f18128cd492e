//! The first page: queues and nodes, made and changed where they stand.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::{Browser, visit};
use disbatch_tests::{World, eventually};
use serde_json::json;

use crate::site::{Site, was_refused};

/// Waits until a queue has this in the database.
async fn until_queue(world: &World, what: bson::Document) -> anyhow::Result<()> {
    let queues = world.database().collection::<bson::Document>("queues");
    let name = format!("a queue with {what}");
    eventually(&name, async || Ok(queues.find_one(what.clone()).await?)).await.map(drop)
}

/// Waits until a field of this label has this value.
async fn until_value(browser: &Browser, label: &str, value: &str) -> anyhow::Result<()> {
    let script = format!(
        "return [...document.querySelectorAll('input')].find((input) => input.ariaLabel === {})?.value === {}",
        json!(label),
        json!(value)
    );
    browser.until(&format!("{label}: {value}"), &script).await.map(drop)
}

#[tokio::test]
async fn a_queue_is_made_and_changed_where_it_stands() -> anyhow::Result<()> {
    let site = Site::new().await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.until_text("No node has been seen yet.").await?;
        page.click("link", "New queue").await?;
        let dialog = browser.part("dialog[open]", "New queue");
        dialog.fill("Name", "nightly reports").await?;
        dialog.choose("Plugin", "Disbatch::Plugin::Demo").await?;
        dialog.click("button", "Make it").await?;
        page.until_text("Queue nightly reports is there.").await?;
        page.until_there("link", "nightly reports").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "plugin": "Disbatch::Plugin::Demo" })
            .await?;

        // The same name once more is refused where it was asked for.
        page.click("link", "New queue").await?;
        dialog.fill("Name", "nightly reports").await?;
        dialog.click("button", "Make it").await?;
        dialog.until_text("This name is taken.").await?;
        was_refused(browser).await?;
        browser.press("Escape").await?;

        page.fill("Threads of nightly reports", "3").await?;
        browser.press("Enter").await?;
        page.until_text("Threads of nightly reports: 3.").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "threads": 3 }).await?;
        page.click("button", "Undo").await?;
        page.until_text("Taken back.").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "threads": 0 }).await?;
        until_value(browser, "Threads of nightly reports", "0").await?;

        page.click("switch", "Run tasks of nightly reports").await?;
        page.until_text("nightly reports is paused.").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "paused": true }).await?;
        page.fill("Reason of nightly reports", "the disk is being changed").await?;
        browser.press("Enter").await?;
        until_queue(&site.world, doc! { "reason": "the disk is being changed" }).await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_others_change_is_seen_without_loading_the_page_again() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        browser.script("globalThis.stillTheSame = true", json!([])).await?;
        let page = browser.page();
        let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 2 }).await?;
        page.until_there("link", "mail").await?;
        world.update_queue(queue, doc! { "threads": 7 }).await?;
        until_value(browser, "Threads of mail", "7").await?;
        // What somebody is typing stays.
        page.fill("Threads of mail", "55").await?;
        world.update_queue(queue, doc! { "threads": 9, "paused": true }).await?;
        page.until_text("paused").await?;
        until_value(browser, "Threads of mail", "55").await?;
        browser.press("Escape").await?;
        let _den = world.den_at_work("node1").await?;
        page.until_there("link", "node1").await?;
        page.fill("Most tasks at once on node1; empty for no limit", "4").await?;
        browser.press("Enter").await?;
        page.until_text("node1 runs at most so many tasks at once: 4.").await?;
        ensure!(browser.script("return globalThis.stillTheSame", json!([])).await? == true);
        Ok(())
    })
    .await?;
    site.end().await
}
