//! Pages can be used by everybody, as far as axe-core can tell.

use bson::doc;
use disbatch_core::model::TaskId;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

/// Queues, a node, and tasks that wait, have succeeded and have failed. Gives the last one.
async fn furnish(site: &Site) -> anyhow::Result<TaskId> {
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports", "threads": 2 }).await?;
    world
        .queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "paused": true, "reason": "moving" })
        .await?;
    let commands = ["echo all is well", "echo something is wrong >&2; exit 3"];
    let ids = world.submit(queue, commands.map(|command| doc! { "command": command }).into()).await?;
    world.until_status(ids[0], 1).await?;
    world.until_status(ids[1], 2).await?;
    schedule(site).await?;
    let headers = json!({ "X-Key": "{{secret:reports}}" });
    let worker = json!({
        "_id": "My::Report", "engine": "http", "description": "Writes a report.",
        "http": { "url": "https://reports.example/run", "headers": headers },
        "params": { "properties": { "to": { "type": "string", "description": "who reads it" } } },
    });
    site.post("/workers", &worker).await?;
    let nights = json!({
        "events": ["first_failure", "lost"], "queues": "reports", "waits_longer": 3600, "channel": "webhook",
        "url": "https://hooks.example/x",
    });
    site.post("/subscriptions/nights", &nights).await?;
    let later = doc! { "command": "true" };
    world.update_queue(queue, doc! { "paused": true }).await?;
    world.submit(queue, vec![later]).await?;
    Ok(ids[1])
}

/// A schedule with a run and a calendar.
async fn schedule(site: &Site) -> anyhow::Result<()> {
    let holidays = json!({ "name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25"] });
    site.post("/calendars", &holidays).await?;
    let nightly = json!({
        "name": "nightly", "queue": "reports", "cron": "30 2 * * *", "zone": "Europe/Berlin",
        "params": { "command": "echo all is well" }, "calendars": [{ "name": "holidays", "use": "exclude" }],
    });
    site.post("/schedules", &nightly).await?;
    site.post("/schedules/nightly/run", &json!({})).await
}

#[tokio::test]
async fn pages_are_accessible_in_the_light_and_in_the_dark() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let _den = site.world.den_at_work("node1").await?;
    let task = format!("/tasks/{}", furnish(&site).await?);
    visit(async |browser| {
        let mut found = Vec::new();
        for width in [360, 1440] {
            browser.resize(width, 900).await?;
            let more = [
                "/queues/reports",
                "/queues/reports/groups",
                "/queues/reports/shadow",
                "/nodes",
                "/nodes/node1",
                "/plugins",
                "/workers",
                "/workers/My::Report",
                "/audit",
                "/moments",
                "/about",
                "/schedules",
                "/schedules/nightly",
                "/schedules/nightly/edit",
                "/schedules/new",
                "/calendars",
                "/arrays",
                "/subscriptions",
            ];
            for path in ["/", "/tasks", "/balance", "/docs", &task].into_iter().chain(more) {
                browser.open(&site.url(path)).await?;
                if path == "/docs" {
                    // Its operations are alike, and all of them take axe-core most of a minute.
                    let few = "document.querySelectorAll('.operation').forEach((part, at) => { if (at % 10) part.remove(); })";
                    browser.script(few, json!([])).await?;
                }
                let violations = browser.violations_in_both_themes().await?;
                found.extend(violations.iter().map(|text| format!("{path}, {width} px: {text}")));
            }
            let open = "document.querySelectorAll('.menu, .further, main details').forEach((part) => { part.open = true; })";
            browser.script(open, json!([])).await?;
            let violations = browser.violations_in_both_themes().await?;
            found.extend(violations.iter().map(|text| format!("the menu and folded parts, {width} px: {text}")));
        }
        assert!(found.is_empty(), "{}:\n{}", found.len(), found.join("\n"));
        Ok(())
    })
    .await?;
    site.end().await
}
