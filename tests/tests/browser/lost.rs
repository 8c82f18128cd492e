//! The server goes, and comes back, while somebody looks.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::visit;
use disbatch_tests::{Dci, World};
use serde_json::json;

#[tokio::test]
async fn a_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let log = world.path().join("dci.log");
    let dci = Dci::start(&world.config(), &log).await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    // As long as the page is open.
    let mut back = None;
    visit(async |browser| {
        browser.open(&format!("{}/", dci.url())).await?;
        let page = browser.page();
        page.until_there("link", "mail").await?;
        page.until_text("Live").await?;
        page.click("link", "New queue").await?;
        let dialog = browser.part("dialog[open]", "New queue");
        dialog.fill("Name", "reports").await?;
        let address = dci.kill().await?;
        page.until_text("Connection lost").await?;
        dialog.click("button", "Make it").await?;
        dialog.until_text("The server cannot be reached.").await?;
        // Meanwhile somebody else works on.
        world.update_queue(queue, doc! { "paused": true }).await?;
        back = Some(Dci::start_at(&address, &world.config(), &log).await?);
        page.until_text("Live").await?;
        page.until_text("paused").await?;
        // What was typed is still there.
        let name = "return document.querySelector('#new-queue [name=name]').value";
        ensure!(browser.script(name, json!([])).await? == "reports");
        dialog.click("button", "Make it").await?;
        page.until_there("link", "reports").await?;
        let complaints = browser.complaints().await?;
        let is_meant = |text: &String| text.contains("ERR_") || text.contains("htmx");
        ensure!(complaints.iter().all(is_meant), "{complaints:?}");
        Ok(())
    })
    .await?;
    drop(back);
    world.end().await
}
