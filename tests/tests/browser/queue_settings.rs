//! The settings of a queue: one form, which overwrites nothing that it has not seen.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::{Browser, visit};
use disbatch_tests::{World, eventually};
use serde_json::json;

use crate::site::Site;

const OPEN: &str = "document.querySelectorAll('details.setting').forEach((part) => { part.open = true; })";

/// Waits until a queue has this in the database.
async fn until_queue(world: &World, what: bson::Document) -> anyhow::Result<()> {
    let queues = world.database().collection::<bson::Document>("queues");
    let name = format!("a queue with {what}");
    eventually(&name, async || Ok(queues.find_one(what.clone()).await?)).await.map(drop)
}

/// Removes what was said of earlier actions.
async fn forget_toasts(browser: &Browser) -> anyhow::Result<()> {
    browser.script("document.querySelector('#toasts').replaceChildren()", json!([])).await.map(drop)
}

#[tokio::test]
async fn what_others_have_changed_meanwhile_is_not_overwritten() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let fields = doc! { "name": "import", "threads": 1, "timeout": 3600, "max_attempts": 3 };
    let queue = world.queue("Disbatch::Plugin::Demo", fields).await?;
    visit(async |browser| {
        browser.open(&site.url("/queues/import?tab=settings")).await?;
        browser.script(OPEN, json!([])).await?;
        let page = browser.page();
        world.update_queue(queue, doc! { "timeout": 1800 }).await?;
        page.fill("Attempts", "5").await?;
        page.click("button", "Save").await?;
        page.until_text("Settings of import: saved.").await?;
        until_queue(world, doc! { "name": "import", "timeout": 1800, "max_attempts": 5 }).await?;

        // The same field: it is named, and what was typed is still there.
        forget_toasts(browser).await?;
        world.update_queue(queue, doc! { "max_attempts": 7 }).await?;
        page.fill("Attempts", "6").await?;
        page.click("button", "Save").await?;
        page.until_text("max_attempts (now 7)").await?;
        page.until_text("Somebody else has set this to 7 meanwhile.").await?;
        let typed = "return document.querySelector('[name=max_attempts]').value === '6'";
        browser.until("what was typed", typed).await?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.iter().all(|text| text.contains("409")), "{complaints:?}");
        until_queue(world, doc! { "name": "import", "max_attempts": 7 }).await?;
        page.click("button", "Save").await?;
        page.until_text("Settings of import: saved.").await?;
        until_queue(world, doc! { "name": "import", "timeout": 1800, "max_attempts": 6 }).await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_is_taken_back_is_the_last_change_alone() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let fields = doc! { "name": "mail", "threads": 1, "sort": "fifo", "timeout": 60 };
    let queue = world.queue("Disbatch::Plugin::Demo", fields).await?;
    visit(async |browser| {
        browser.open(&site.url("/queues/mail?tab=settings")).await?;
        browser.script(OPEN, json!([])).await?;
        let page = browser.page();
        for order in ["lifo: the newest first", "fifo: the oldest first", "lifo: the newest first"] {
            forget_toasts(browser).await?;
            page.choose("Order", order).await?;
            page.click("button", "Save").await?;
            page.until_text("Settings of mail: saved.").await?;
        }
        until_queue(world, doc! { "name": "mail", "sort": "lifo" }).await?;
        world.update_queue(queue, doc! { "timeout": 90 }).await?;
        page.click("button", "Undo").await?;
        until_queue(world, doc! { "name": "mail", "sort": "fifo", "timeout": 90 }).await?;
        browser
            .until("the order", "return document.querySelector('select[name=sort]').value === 'fifo'")
            .await
            .map(drop)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_reason_goes_when_its_queue_goes_on_and_comes_back_with_undo() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    visit(async |browser| {
        browser.open(&site.url("/queues/mail")).await?;
        let page = browser.page();
        page.click("switch", "Run tasks").await?;
        page.fill("Reason", "a move").await?;
        browser.press("Enter").await?;
        until_queue(world, doc! { "paused": true, "reason": "a move" }).await?;
        page.until_text("as it is paused: a move").await?;
        forget_toasts(browser).await?;
        page.click("switch", "Run tasks").await?;
        page.until_text("mail runs tasks again.").await?;
        until_queue(world, doc! { "name": "mail", "reason": { "$exists": false } }).await?;
        page.until_no_text("a move").await?;
        page.click("button", "Undo").await?;
        until_queue(world, doc! { "paused": true, "reason": "a move" }).await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_number_of_threads_that_may_be_a_mistake_is_asked_about() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 3 }).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.fill("Threads of mail", "1000000000").await?;
        browser.press("Tab").await?;
        page.until_text("Not saved. ").await?;
        // There is room for what is wrong, though the column is narrow.
        let wide = "return document.querySelector('.complaint').getBoundingClientRect().width > 150";
        browser.until("a message that can be read", wide).await?;
        page.fill("Threads of mail", "5000").await?;
        browser.press("Enter").await?;
        page.until_text("Let 5000 tasks of mail run at once?").await?;
        page.click("button", "No, go back").await?;
        let before = "return document.querySelector('[name=threads]').value === '3'";
        browser.until("what it was before", before).await?;
        until_queue(world, doc! { "name": "mail", "threads": 3 }).await?;
        page.fill("Threads of mail", "5000").await?;
        browser.press("Enter").await?;
        page.click("button", "Yes").await?;
        until_queue(world, doc! { "name": "mail", "threads": 5000 }).await
    })
    .await?;
    site.end().await
}
