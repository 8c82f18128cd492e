//! Tasks beside their shadows.

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_core::model::{TaskId, shadow_id};
use disbatch_tests::Script;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

/// Says what it was given. The next version says something else of what is odd.
const OLD: &str = r#"#!/usr/bin/env python3
import json, sys
n = json.load(sys.stdin)["params"]["n"]
print("the number\nis", n)
"#;

#[tokio::test]
async fn what_came_out_differently_stands_side_by_side() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.script_queue(Script { name: "Old", text: OLD }, 4).await?;
    let new = OLD.replace("is\", n)", "is\", n if n % 2 == 0 else -n)");
    let manifest = json!({ "name": "New", "command": ["./run"], "shadow": true });
    Script { name: "New", text: &new }.install_as(&world.plugins(), &manifest)?;
    let next = world.queue("New", doc! { "threads": 4, "name": "next" }).await?;
    let _den = world.den_at_work("node1").await?;
    let path = format!("/queues/{queue}");
    visit(async |browser| {
        browser.open(&site.url(&format!("{path}?tab=settings"))).await?;
        let page = browser.page();
        browser.script("for (const all of document.querySelectorAll('details.setting')) all.open = true", json!([])).await?;
        page.fill("Queue", "next").await?;
        let share = "document.querySelector('[name=\"shadow.share\"]').value = '1'";
        browser.script(share, json!([])).await?;
        page.click("button", "Save").await?;
        page.until_text("saved").await?;
        let tasks = world.submit(queue, vec![doc! { "n": 1 }, doc! { "n": 2 }]).await?;
        let odd = *tasks.first().context("no task")?;
        shadows(&site, next, &tasks).await?;
        browser.open(&site.url(&format!("{path}/shadow"))).await?;
        page.until_text("1 different").await?;
        let failures = browser.violations().await?;
        ensure!(failures.is_empty(), "{failures:?}");
        browser.script("document.querySelector('details.panel').open = true", json!([])).await?;
        let marked = "return [...document.querySelectorAll('.diff mark')].map(mark => mark.textContent).join(' ') === '1 -1'";
        browser.until("what has changed is marked", marked).await?;
        page.click("link", &shadow_id(odd).to_string()).await?;
        page.until_text("Shadow of").await?;
        page.click("link", &odd.to_string()).await?;
        page.until_text("Its shadow").await
    })
    .await?;
    site.end().await
}

async fn shadows(site: &Site, next: disbatch_core::model::QueueId, tasks: &[TaskId]) -> anyhow::Result<()> {
    let world = &site.world;
    disbatch_tests::eventually("all shadows", async || {
        Ok((world.count(next, doc! { "status": 1 }).await? == tasks.len() as u64).then_some(()))
    })
    .await
}
