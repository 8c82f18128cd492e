//! Who did what.

use bson::{Document, doc};
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn entries_say_in_words_what_has_changed() -> anyhow::Result<()> {
    let site = Site::new().await?;
    for name in ["mail", "reports"] {
        site.world.queue("Disbatch::Plugin::Demo", doc! { "name": name, "threads": 0 }).await?;
    }
    site.post("/queues/mail", &json!({ "paused": true, "accepting": false })).await?;
    site.post("/schedules", &json!({ "name": "nightly", "queue": "mail", "cron": "@daily" })).await?;
    site.post("/schedules/nightly", &json!({ "queue": "reports" })).await?;
    visit(async |browser| {
        browser.open(&site.url("/audit")).await?;
        let rows = browser.part("tbody", "");
        for text in ["paused: no → yes", "accepting: yes → no", "queue: mail → reports", "anonymous", " UTC"]
        {
            rows.until_text(text).await?;
        }
        rows.until_no_text("$oid").await?;
        rows.until_no_text(" ago").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn logins_are_left_out_and_tasks_have_their_names() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let titled = doc! { "name": "mail", "threads": 0, "title": "letter to {to}" };
    let queue = world.queue("Disbatch::Plugin::Demo", titled).await?;
    let task = world.submit(queue, vec![doc! { "to": "ada" }]).await?[0];
    site.post(&format!("/tasks/{task}/cancel"), &json!({})).await?;
    let now = world.store().server_time().await?;
    let login =
        doc! { "at": now, "by": "bob", "user": "bob", "what": "login", "object": { "kind": "session" } };
    world.database().collection::<Document>("audit").insert_one(login).await?;
    visit(async |browser| {
        browser.open(&site.url("/audit")).await?;
        let (page, rows) = (browser.page(), browser.part("tbody", ""));
        rows.until_text("login").await?;
        page.click("link", "Changes only").await?;
        rows.until_no_text("login").await?;
        rows.until_text("task cancel").await?;
        page.click("link", "Changes only").await?;
        rows.until_text("login").await?;
        page.click("link", "letter to ada").await?;
        page.until_text("cancelled").await
    })
    .await?;
    site.end().await
}

/// Where words begin and end has to be asked for as a range: elements have the heights of their cells.
#[tokio::test]
async fn the_heads_of_columns_are_on_one_line() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    site.world.submit(queue, vec![doc! { "to": "ada" }]).await?;
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        browser.page().until_text("ada").await?;
        let apart = "const top = (cell) => {
                const range = document.createRange();
                range.selectNodeContents([...cell.childNodes].findLast((node) => node.textContent.trim()));
                return range.getBoundingClientRect().top;
            };
            const tops = [...document.querySelectorAll('thead th')].map(top);
            return Math.max(...tops) - Math.min(...tops) < 1";
        browser.until("heads on one line", apart).await.map(drop)
    })
    .await?;
    site.end().await
}
