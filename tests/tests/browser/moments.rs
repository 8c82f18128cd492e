//! What happened at a moment of the past.

use bson::doc;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn a_moment_is_told_and_others_are_a_link_away() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 0 }).await?;
    let task = site.world.submit(queue, vec![doc! { "commands": "ab1" }]).await?[0];
    site.post("/queues/mail", &json!({ "paused": true })).await?;
    visit(async |browser| {
        browser.open(&site.url("/queues/mail")).await?;
        let page = browser.page();
        page.click("link", "Look back").await?;
        page.until_text("0 running, 1 waiting.").await?;
        page.until_text("queue update mail: paused nothing → true").await?;
        page.until_text("paused true").await?;
        page.click("link", "Longer").await?;
        page.until_text("queue update mail: paused nothing → true").await?;
        page.click("link", "Earlier").await?;
        page.until_text("the audit does not reach so far").await?;
        site.world.set(task, doc! { "status": 2, "mtime": site.world.store().now() }).await?;
        browser.open(&site.url(&format!("/tasks/{task}"))).await?;
        page.click("link", "What else happened then").await?;
        page.until_text("queue update mail: paused nothing → true").await?;
        page.until_text("a task ended as failed").await?;
        let violations = browser.violations().await?;
        anyhow::ensure!(violations.is_empty(), "{violations:?}");
        Ok(())
    })
    .await?;
    site.end().await
}
