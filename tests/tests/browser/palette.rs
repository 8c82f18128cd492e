//! One search for everything, from every page.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::{Browser, visit};
use serde_json::json;

use crate::site::Site;

/// Waits until the browser is at this address, and its script has begun.
async fn until_at(browser: &Browser, path: &str) -> anyhow::Result<()> {
    let script = format!(
        "return location.pathname + location.search === {} && globalThis.disbatch !== undefined",
        json!(path)
    );
    browser.until(path, &script).await.map(drop)
}

/// Looks for something, and waits until it is the first that is offered.
async fn look_for(browser: &Browser, text: &str, first: &str) -> anyhow::Result<()> {
    browser.press("Control+k").await?;
    let palette = browser.part("dialog[open]", "");
    palette.fill("Search everything", text).await?;
    let script = format!(
        "return document.querySelector('#palette [aria-selected=true] .name').textContent === {}",
        json!(first)
    );
    browser.until(first, &script).await.map(drop)
}

#[tokio::test]
async fn everything_is_found_by_name_or_id() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "import" }).await?;
    let task = world.submit(queue, vec![doc! { "to": "q7x" }]).await?[0].to_string();
    let nightly = json!({ "name": "nightly", "queue": "import", "cron": "30 2 * * *" });
    site.post("/schedules", &nightly).await?;
    visit(async |browser| {
        browser.open(&site.url("/about")).await?;
        until_at(browser, "/about").await?;
        look_for(browser, "impo", "import").await?;
        let violations = browser.violations().await?;
        ensure!(violations.is_empty(), "{violations:?}");
        browser.press("Enter").await?;
        until_at(browser, "/queues/import").await?;
        // Its characters, in order.
        look_for(browser, "ngtly", "nightly").await?;
        browser.press("Enter").await?;
        until_at(browser, "/schedules/nightly").await?;
        look_for(browser, "locks", "Locks").await?;
        browser.press("Enter").await?;
        until_at(browser, "/locks").await?;
        look_for(browser, &task, &task).await?;
        browser.press("Enter").await?;
        until_at(browser, &format!("/tasks/{task}")).await?;
        // What can be done here.
        look_for(browser, "cancel", "Cancel").await?;
        browser.press("Enter").await?;
        browser.part("dialog[open]", "Cancel this task?").until_text("Cancel this task?").await?;
        browser.press("Escape").await?;
        look_for(browser, "q7x", "Tasks with “q7x” in their parameters").await?;
        browser.press("Enter").await?;
        until_at(browser, "/tasks?.text=q7x").await?;
        browser.page().until_text("q7x").await?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.is_empty(), "{complaints:?}");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn without_script_a_field_leads_to_what_is_meant() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    for name in ["mail", "mailing"] {
        world.queue("Disbatch::Plugin::Demo", doc! { "name": name }).await?;
    }
    visit(async |browser| {
        for (q, leads) in
            [("mailing", "/queues/mailing"), ("zzz", "/tasks?.text=zzz"), ("mail", "/search?q=mail")]
        {
            browser.open(&site.url(&format!("/search?q={q}"))).await?;
            until_at(browser, leads).await?;
        }
        let page = browser.page();
        page.until_there("link", "mailing").await?;
        page.click("link", "mail").await?;
        until_at(browser, "/queues/mail").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn tasks_are_searched_by_the_name_of_their_queue() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "import" }).await?;
    let other = world.queue("Disbatch::Plugin::Demo", doc! { "name": "other" }).await?;
    let task = world.submit(queue, vec![doc! { "to": "ada" }]).await?[0];
    world.submit(other, vec![doc! { "to": "grace" }]).await?;
    visit(async |browser| {
        browser.open(&site.url("/tasks?queue=import")).await?;
        let page = browser.page();
        page.until_text("ada").await?;
        page.until_no_text("grace").await?;
        page.until_text("Live").await
    })
    .await?;
    let get = async |path: String, accept: &str| {
        let answer = reqwest::Client::new().get(site.url(&path)).header("accept", accept).send().await?;
        anyhow::Ok(answer.error_for_status()?)
    };
    let found = get("/tasks?queue=import".into(), "application/json").await?.text().await?;
    ensure!(found.contains(&task.to_string()) && !found.contains("grace"), "{found}");
    let mut events =
        get(format!("/ui/tasks?queue=import&.ids={task}&.newest=1"), "text/event-stream").await?;
    let mut sent = String::new();
    while !sent.contains("id=\"newer\"") {
        ensure!(!sent.contains("event: trouble"), "{sent}");
        let Some(chunk) = events.chunk().await? else { break };
        sent.push_str(&String::from_utf8_lossy(&chunk));
    }
    ensure!(sent.contains("id=\"newer\""), "{sent}");
    site.end().await
}

#[tokio::test]
async fn selected_rows_are_acted_on_by_keys() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let ids = world.submit(queue, vec![doc! { "to": "ada" }, doc! { "to": "grace" }]).await?;
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        until_at(browser, "/tasks").await?;
        // The row with the focus, as none is selected.
        for key in ["j", "j", "C"] {
            browser.press(key).await?;
        }
        let dialog = browser.part("dialog[open]", "Cancel 1 task: as selected?");
        dialog.click("button", "Cancel it").await?;
        browser.part(&format!("#task-{}", ids[0]), "cancelled").until_text("cancelled").await?;
        browser.part(&format!("#task-{}", ids[1]), "queued").until_text("queued").await?;
        for (key, path) in [("r", "/arrays"), ("l", "/locks"), ("f", "/files"), ("m", "/admission")] {
            browser.press("g").await?;
            browser.press(key).await?;
            until_at(browser, path).await?;
        }
        Ok(())
    })
    .await?;
    site.end().await
}
