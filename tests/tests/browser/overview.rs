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
        dialog.click("button", "Create queue").await?;
        page.until_text("Queue nightly reports is there.").await?;
        page.until_there("link", "nightly reports").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "plugin": "Disbatch::Plugin::Demo" })
            .await?;

        // The same name once more is refused where it was asked for.
        page.click("link", "New queue").await?;
        dialog.fill("Name", "nightly reports").await?;
        dialog.click("button", "Create queue").await?;
        dialog.until_text("This name is taken.").await?;
        was_refused(browser).await?;
        browser.press("Escape").await?;

        page.fill("Threads of nightly reports", "3").await?;
        browser.press("Enter").await?;
        page.until_text("Threads of nightly reports: 3.").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "threads": 3 }).await?;
        page.click("button", "Undo").await?;
        page.until_text("Undone.").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "threads": 1 }).await?;
        until_value(browser, "Threads of nightly reports", "1").await?;

        page.click("switch", "Running tasks of nightly reports").await?;
        page.until_text("nightly reports is paused.").await?;
        until_queue(&site.world, doc! { "name": "nightly reports", "paused": true }).await
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
        world.queue("Disbatch::Plugin::Demo", doc! { "name": "reports" }).await?;
        page.until_there("link", "reports").await?;
        world.update_queue(queue, doc! { "threads": 11 }).await?;
        // Nobody types any more: what is there now is shown, and not what came meanwhile.
        browser.press("Escape").await?;
        until_value(browser, "Threads of mail", "11").await?;
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

#[tokio::test]
async fn what_was_done_is_told_though_the_page_has_changed_before_the_answer() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        // Answers are heard when the test says so, and never before the page has heard of the change.
        let hold = "const { send } = XMLHttpRequest.prototype;
            XMLHttpRequest.prototype.send = function (...body) {
                const hear = this.onload;
                this.onload = () => { globalThis.answer = () => hear.call(this); };
                send.apply(this, body);
            };";
        browser.script(hold, json!([])).await?;
        page.until_there("switch", "Running tasks of mail").await?;
        page.click("switch", "Running tasks of mail").await?;
        page.until_text("paused").await?;
        answer(browser).await?;
        page.until_text("mail is paused.").await?;
        // One that is not in the page any more.
        page.click("switch", "Running tasks of mail").await?;
        until_queue(world, doc! { "name": "mail", "paused": { "$ne": true } }).await?;
        world.database().collection::<bson::Document>("queues").delete_one(doc! { "_id": queue.0 }).await?;
        let gone = "return ![...document.querySelectorAll('a')].some((link) => link.innerText === 'mail')";
        browser.until("mail to be off the page", gone).await?;
        answer(browser).await?;
        page.until_text("mail runs tasks again.").await
    })
    .await?;
    site.end().await
}

/// Lets the page hear the answer that is held back.
async fn answer(browser: &Browser) -> anyhow::Result<()> {
    browser.until("an answer", "return globalThis.answer !== undefined").await?;
    browser.script("globalThis.answer(); globalThis.answer = undefined;", json!([])).await.map(drop)
}

#[tokio::test]
async fn what_is_typed_while_a_field_is_saved_is_saved_next() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        // Requests are counted, and wait until they are let go.
        let hold = "const { send } = XMLHttpRequest.prototype; globalThis.sent = 0; globalThis.held = true;
            globalThis.letGo = () => { globalThis.held = false; globalThis.go(); };
            XMLHttpRequest.prototype.send = function (...body) {
                globalThis.sent += 1;
                globalThis.go = () => send.apply(this, body);
                if (!globalThis.held) globalThis.go();
            };";
        browser.script(hold, json!([])).await?;
        page.fill("Threads of mail", "5").await?;
        browser.press("Enter").await?;
        browser.press("Tab").await?;
        browser.script("globalThis.letGo()", json!([])).await?;
        page.until_text("Threads of mail: 5.").await?;
        browser.script("globalThis.held = true", json!([])).await?;
        page.fill("Threads of mail", "6").await?;
        browser.press("Enter").await?;
        page.fill("Threads of mail", "60").await?;
        browser.press("Enter").await?;
        browser.script("globalThis.letGo()", json!([])).await?;
        page.until_text("Threads of mail: 60.").await?;
        until_queue(world, doc! { "name": "mail", "threads": 60 }).await?;
        ensure!(browser.script("return globalThis.sent", json!([])).await? == 3, "something was sent twice");

        // A field with something wrong can be left, and says what it is.
        page.fill("Threads of mail", "-1").await?;
        browser.press("Tab").await?;
        page.until_text("Not saved. ").await?;
        let told = "const field = document.querySelector('[aria-invalid]');
            const words = document.getElementById(field.getAttribute('aria-describedby'));
            return document.activeElement !== field && words.textContent.startsWith('Not saved. ')";
        browser.until("a message of the field, without the focus", told).await.map(drop)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn the_page_of_a_queue_stays_when_something_is_changed() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1, "sort": "fifo" }).await?;
    visit(async |browser| {
        // Forms lead browsers without script to the address with the id.
        browser.open(&site.url("/queues/mail?tab=new")).await?;
        browser.script("globalThis.stillTheSame = true", json!([])).await?;
        let page = browser.page();
        page.click("tab", "JSON").await?;
        browser.part("#by-json", "Parameters as JSON").fill("Parameters as JSON", "{\"a\": 1}").await?;
        page.fill("Threads", "4").await?;
        browser.press("Enter").await?;
        page.until_text("Threads of mail: 4.").await?;
        page.click("button", "Undo").await?;
        until_queue(world, doc! { "name": "mail", "threads": 1 }).await?;

        ensure!(
            browser.script("return globalThis.stillTheSame", json!([])).await? == true,
            "it was loaded again"
        );
        let typed = "return document.querySelector('#params-json').value";
        ensure!(browser.script(typed, json!([])).await? == "{\"a\": 1}", "what was typed is lost");
        // Nor is it lost to a key that leads elsewhere: the browser asks.
        let asks = "const event = new Event('beforeunload', { cancelable: true });
            return !window.dispatchEvent(event)";
        ensure!(browser.script(asks, json!([])).await? == true, "nobody is asked");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn times_are_told_as_people_say_them() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let seen = world.store().now().timestamp_millis() - 4 * 86_400_000 - 3_600_000;
    let node = doc! { "node": "worn", "timestamp": bson::DateTime::from_millis(seen) };
    world.database().collection::<bson::Document>("nodes").insert_one(node).await?;
    visit(async |browser| {
        browser.open(&site.url("/nodes")).await?;
        browser.part("tbody tr", "worn").until_text("4 days ago").await
    })
    .await?;
    site.end().await
}
