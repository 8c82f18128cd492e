//! Searches, and what is done to many tasks.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_tests::browser::visit;

use crate::site::Site;

#[tokio::test]
async fn a_search_is_in_the_address_and_is_taken_away_piece_by_piece() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let mail = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let other = world.queue("Disbatch::Plugin::Demo", doc! { "name": "other" }).await?;
    world.submit(mail, vec![doc! { "to": "ada" }, doc! { "to": "grace" }]).await?;
    world.submit(other, vec![doc! { "to": "edsger" }]).await?;
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        let page = browser.page();
        for name in ["ada", "grace", "edsger"] {
            page.until_text(name).await?;
        }
        page.choose("Queue", "mail").await?;
        page.fill("Params contain", "ADA").await?;
        page.click("button", "Search").await?;
        page.until_no_text("grace").await?;
        page.click("link", "queued").await?;
        browser.until("the status is asked for", "return location.search.includes('status')").await?;
        page.until_no_text("grace").await?;
        page.until_text("ada").await?;
        let url = browser.url().await?;
        let expected = format!("/tasks?queue={mail}&status=-2&.text=ADA");
        ensure!(url.ends_with(&expected), "{url} has more than what is asked for: {expected}");
        page.click("link", "Remove filter Params contain: ADA").await?;
        page.until_text("grace").await?;
        page.until_no_text("edsger").await?;
        page.click("link", "Clear filters").await?;
        page.until_text("edsger").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn selected_tasks_are_cancelled_by_keyboard() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let ids = world.submit(queue, vec![doc! { "to": "ada" }, doc! { "to": "grace" }]).await?;
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        let page = browser.page();
        page.until_text("grace").await?;
        // The newest is the first.
        for key in ["j", "j", "x"] {
            browser.press(key).await?;
        }
        page.until_text("1 selected:").await?;
        page.click("button", "Cancel").await?;
        let dialog = browser.part("dialog[open]", "Cancel 1 task: as selected?");
        dialog.fill("Reason, for the audit", "sent twice").await?;
        dialog.click("button", "Cancel it").await?;
        page.until_text("1 task cancelled.").await?;
        // The row changes without loading the page again.
        browser.part(&format!("#task-{}", ids[0]), "cancelled").until_text("cancelled").await?;
        browser.part(&format!("#task-{}", ids[1]), "queued").until_text("queued").await
    })
    .await?;
    ensure!(world.status(ids[0]).await? == -5 && world.status(ids[1]).await? == -2);
    let audit = world.database().collection::<Document>("audit");
    ensure!(audit.count_documents(doc! { "reason": "sent twice" }).await? > 0, "the audit has the reason");
    site.end().await
}

#[tokio::test]
async fn a_thousand_failed_tasks_are_retried_at_once() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    world.submit(queue, vec![doc! { "to": "you" }; 1000]).await?;
    world
        .tasks()
        .update_many(doc! { "queue": queue }, doc! { "$set": { "status": 2, "complete": true } })
        .await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks?queue={queue}&status=2"))).await?;
        let page = browser.page();
        page.until_text("1,000 match:").await?;
        page.click("button", "Retry all").await?;
        browser
            .part("dialog[open]", "Retry 1,000 tasks: failed, mail?")
            .click("button", "Retry them")
            .await?;
        page.until_text("1,000 tasks retried.").await?;
        page.until_text("1,000 of 1,000").await?;
        page.click("link", "Retry").await?;
        page.until_text("Bulk job").await?;
        page.until_text("done").await
    })
    .await?;
    ensure!(world.count(queue, doc! { "status": -2 }).await? == 1000);
    site.end().await
}
