//! A subscription from its form to its message.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_core::notifications::QUEUE;
use disbatch_tests::browser::visit;
use disbatch_tests::hook::{Hook, count_events};
use disbatch_tests::{World, eventually};
use serde_json::json;

use crate::site::Site;

/// A site whose nodes may write to this machine.
async fn site() -> anyhow::Result<Site> {
    Site::with(|world| world.configure(json!({ "notifications": { "allow": ["127.0.0.1"] } }))).await
}

async fn count(world: &World, filter: Document) -> anyhow::Result<u64> {
    Ok(world.database().collection::<Document>("subscriptions").count_documents(filter).await?)
}

#[tokio::test]
async fn a_subscription_is_made_tried_changed_and_deleted() -> anyhow::Result<()> {
    let (site, hook) = (site().await?, Hook::start(vec![]).await?);
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "imports", "threads": 1 }).await?;
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        browser.open(&site.url("/subscriptions")).await?;
        let page = browser.page();
        page.until_text("Nobody is told anything yet.").await?;
        let form = browser.part("section.panel", "New subscription");
        form.fill("Name", "nights").await?;
        form.click("checkbox", "each failure").await?;
        form.fill("Queues", "imports").await?;
        form.fill("Address of the webhook, or of the mail server", &hook.url()).await?;
        form.click("DisclosureTriangle", "Mail, times and texts").await?;
        form.fill("A message waits for others, seconds", "0").await?;
        form.click("button", "Create subscription").await?;
        let panel = browser.part("section.panel", "nights");
        panel.until_text("each failure, the first failure after a success").await?;
        panel.until_text("of imports").await?;
        panel.until_text(&format!("By webhook to {}. 0 messages.", hook.url())).await?;

        panel.click("button", "Send a test to nights").await?;
        let follows = "return /^\\/tasks\\/[0-9a-f]{24}$/.test(location.pathname)";
        browser.until("the page of the task", follows).await?;
        page.until_text("succeeded").await?;
        ensure!(count_events(&hook.messages()?, "test") == 1, "{:?}", hook.received());

        // What happens is told, too, and a link leads to the task that has told it.
        let failing = world.submit(queue, vec![doc! { "commands": "c", "noreport": 1 }]).await?[0];
        world.until_status(failing, 2).await?;
        eventually("the failure to be told", || async {
            Ok((count_events(&hook.messages()?, "failed") == 1).then_some(()))
        })
        .await?;
        world.until_all_ended(QUEUE).await?;
        browser.open(&site.url("/subscriptions")).await?;
        panel.until_text("1 message, the last one by this task.").await?;
        panel.click("link", "this task").await?;
        browser.until("the page of the task", follows).await?;
        page.until_text("succeeded").await?;

        browser.open(&site.url("/subscriptions")).await?;
        panel.click("DisclosureTriangle", "Change nights").await?;
        panel.choose("Messages", "are switched off").await?;
        panel.click("button", "Save").await?;
        panel.until_there("heading", "nights switched off").await?;
        let off = doc! { "_id": "nights", "settings.enabled": false, "settings.delay": 0.0 };
        ensure!(count(world, off).await? == 1, "something else is stored");

        panel.click("button", "Delete nights").await?;
        page.until_text("Delete the subscription nights? Nothing is sent for it any more.").await?;
        ensure!(count(world, doc! {}).await? == 1, "nothing was to happen yet");
        page.click("button", "Delete subscription nights").await?;
        page.until_text("The subscription nights is deleted.").await?;
        page.until_text("Nobody is told anything yet.").await?;
        ensure!(count(world, doc! {}).await? == 0, "it is still there");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_is_wrong_with_a_subscription_is_said() -> anyhow::Result<()> {
    let site = site().await?;
    visit(async |browser| {
        browser.open(&site.url("/subscriptions")).await?;
        let form = browser.part("section.panel", "New subscription");
        form.fill("Name", "nights").await?;
        form.fill("Address of the webhook, or of the mail server", "hooks.example.org").await?;
        form.click("button", "Create subscription").await?;
        form.until_text("url: expected an address with http:// or https://").await?;
        let typed = "return document.querySelector('#new-title + form [name=name]').value === 'nights'";
        browser.until("what was typed", typed).await?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.iter().all(|text| text.contains("400")), "{complaints:?}");
        Ok(())
    })
    .await?;
    ensure!(count(&site.world, doc! {}).await? == 0, "it is stored");
    site.end().await
}
