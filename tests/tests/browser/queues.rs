//! Queues at work: what needs attention, which are shown first, what runs, failed and is next, and rules for new tasks.

use anyhow::{Context, ensure};
use bson::{DateTime, Document, doc};
use disbatch_core::model::{Queue, Selector};
use disbatch_tests::World;
use disbatch_tests::browser::{Theme, visit};
use serde_json::json;

use crate::site::Site;

/// A node that is alive, and of which nobody knows what plugins it has.
async fn node(world: &World) -> anyhow::Result<()> {
    let node = doc! { "node": "n1", "timestamp": world.store().now() };
    world.database().collection::<Document>("nodes").insert_one(node).await?;
    Ok(())
}

/// The time so many seconds ago.
fn ago(world: &World, seconds: i64) -> DateTime {
    DateTime::from_millis(world.store().now().timestamp_millis() - seconds * 1000)
}

async fn find(world: &World, name: &str) -> anyhow::Result<Queue> {
    world.store().find_queue(&Selector::parse(name)).await?.context("no such queue")
}

#[tokio::test]
async fn a_queue_that_starts_as_its_rate_allows_is_no_alarm() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    node(world).await?;
    let rate = doc! { "name": "billing", "threads": 1, "rate": { "n": 60, "per": 3600 } };
    let queue = world.queue("Disbatch::Plugin::Demo", rate).await?;
    world.submit(queue, vec![doc! {}; 19]).await?;
    world.tasks().update_many(doc! {}, doc! { "$set": { "ctime": ago(world, 1080) } }).await?;
    let granted = world.store().take_starts(&find(world, "billing").await?, None, 1).await?;
    ensure!(granted.starts == 1, "{granted:?}");
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.until_text("billing: 19 wait, 60 an hour, empty in 19 min.").await?;
        page.until_text("waits for rate").await?;
        page.until_no_text("Nothing of billing runs").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn rejecting_all_new_tasks_is_asked_about_and_seen_on_every_page() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    world.submit(queue, vec![doc! {}]).await?;
    visit(async |browser| {
        browser.open(&site.url("/admission")).await?;
        let page = browser.page();
        page.until_text("All new tasks are accepted.").await?;
        page.choose("Scope", "all tasks").await?;
        page.fill("Reason", "upgrade at noon").await?;
        page.click("button", "Add rule").await?;
        page.until_text("of all queues and users: reject. Add it?").await?;
        page.click("button", "Add the rule").await?;
        page.until_text("Not safe to upgrade yet: 1 wait").await?;
        page.until_text("New tasks are rejected").await?;
        world.tasks().update_many(doc! {}, doc! { "$set": { "status": 1 } }).await?;
        page.until_text("Safe to upgrade").await?;
        page.until_no_text("Not safe").await?;
        for path in ["/", "/queues/mail", "/tasks", "/schedules", "/about"] {
            browser.open(&site.url(path)).await?;
            page.until_text("New tasks are rejected").await?;
            page.until_text("upgrade at noon").await?;
        }
        browser.open(&site.url("/queues/mail")).await?;
        page.until_text("rejected by the rule for all tasks").await?;
        browser.open(&site.url("/")).await?;
        page.until_text("rejected by the rule for all tasks").await?;
        page.click("button", "Lift").await?;
        page.until_text("Lift the rule for all new tasks?").await?;
        page.click("button", "Lift the rule").await?;
        page.until_text("All new tasks are accepted again.").await?;
        page.until_no_text("New tasks are rejected").await?;
        page.until_no_text("rejected by the rule for all tasks").await?;
        // Whoever looks at a page is told at once.
        let rule = json!({ "scope": "all", "action": "pause", "reason": "a test" });
        site.post("/admission", &rule).await?;
        page.until_text("New tasks are held").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn the_page_of_a_queue_shows_what_runs_failed_and_is_next() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue =
        world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 2, "sort": "fifo" }).await?;
    let params = |command: &str| doc! { "command": command };
    let ids = world
        .submit(
            queue,
            vec![params("at work"), params("broken"), params("comes first"), params("comes later")],
        )
        .await?;
    world.set(ids[0], doc! { "status": 0, "node": "n1", "started": ago(world, 60) }).await?;
    let failed = doc! { "status": 2, "node": "n1", "mtime": ago(world, 30), "exit": { "code": 3 } };
    world.set(ids[1], failed).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.click("link", "mail").await?;
        let running = browser.part("#queue-running", "Running (1)");
        running.until_text("at work").await?;
        let failed = browser.part("#queue-failed", "Failed");
        failed.until_text("broken").await?;
        failed.until_text("exit code 3").await?;
        let next =
            "return document.querySelector('#queue-next tbody tr').textContent.includes('comes first')";
        browser.until("the next task", next).await?;
        // They change while they are looked at.
        world.set(ids[2], doc! { "status": 0, "node": "n1", "started": ago(world, 1) }).await?;
        browser.part("#queue-running", "Running (2)").until_text("comes first").await?;
        let next = next.replace("first", "later");
        browser.until("the next task", &next).await?;
        browser.part("#queue-running", "Running (2)").click("link", "at work").await?;
        browser.until("the task", &format!("return location.pathname === '/tasks/{}'", ids[0])).await?;
        browser.script("history.back()", json!([])).await?;
        page.click("link", "Settings").await?;
        page.until_there("heading", "Settings").await?;
        ensure!(browser.url().await?.ends_with("?tab=settings"), "a tab has no address");
        browser.script("history.back()", json!([])).await?;
        page.until_text("Running (2)").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn many_queues_are_sorted_and_idle_ones_folded() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    for n in 10..24 {
        world.queue("Disbatch::Plugin::Demo", doc! { "name": format!("idle{n}"), "threads": 1 }).await?;
    }
    let few = world.queue("Disbatch::Plugin::Demo", doc! { "name": "few", "threads": 1 }).await?;
    let many = world.queue("Disbatch::Plugin::Demo", doc! { "name": "many", "threads": 1 }).await?;
    world.submit(few, vec![doc! {}; 2]).await?;
    world.submit(many, vec![doc! {}; 7]).await?;
    let blocked = doc! { "$set": { "status": -4, "gate": "locks" } };
    world.tasks().update_many(doc! { "queue": few }, blocked).await?;
    let stopped = doc! {
        "name": "stopped", "threads": 1, "paused": true, "reason": "the storage migration, until Monday morning at 9",
        "stopped": { "by": "ann", "at": ago(world, 7200) },
    };
    world.queue("Disbatch::Plugin::Demo", stopped).await?;
    visit(async |browser| {
        browser.resize(1440, 900).await?;
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.until_text("14 idle queues").await?;
        page.until_text("in 2 of 17 queues").await?;
        let names = "return [...document.querySelectorAll('#all-queues tbody th')].filter((name) => name.checkVisibility()).map((name) => name.textContent.trim()).join(' ')";
        ensure!(browser.script(names, json!([])).await? == "few many stopped");
        let row = browser.part("#queues tr", "stopped");
        row.until_text("by ann").await?;
        row.until_text("the storage migration, until Monday morning at 9").await?;
        browser.part("#queues tr", "few").until_text("blocked").await?;
        // With all that, nothing of the table is out of sight.
        let fits = "const region = document.querySelector('#queues .region'); return region.scrollWidth <= region.clientWidth";
        browser.until("a table that fits", fits).await?;
        page.click("link", "Waiting").await?;
        browser.until("the address", "return location.search === '?sort=-waiting'").await?;
        let names = browser.script(names, json!([])).await?;
        ensure!(names.as_str().is_some_and(|names| names.starts_with("many few idle10 ")), "{names}");
        page.until_text("Live").await?;
        world.submit(few, vec![doc! {}; 8]).await?;
        let first = "return document.querySelector('#queues tbody th').textContent.trim() === 'few'";
        browser.until("the order of what waits now", first).await?;
        // What is looked for is found among those that are folded away, too.
        browser.open(&site.url("/")).await?;
        page.fill("Show only queues with", "idle17").await?;
        page.until_there("link", "idle17").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn queues_are_grouped_by_prefix_or_tenant_with_what_each_group_has() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let mut first = None;
    for (name, tenant) in [
        ("mail-in", "acme"),
        ("mail-out", "acme"),
        ("import.a", "lux"),
        ("import.b", ""),
        ("zip", ""),
        ("sum", ""),
    ] {
        let mut fields = doc! { "name": name, "threads": 2 };
        if !tenant.is_empty() {
            fields.insert("tenant", tenant);
        }
        let queue = world.queue("Disbatch::Plugin::Demo", fields).await?;
        first.get_or_insert(queue);
        world.submit(queue, vec![doc! {}; 2]).await?;
    }
    let first = first.context("no queue")?;
    let rows = "return [...document.querySelectorAll('#queues tbody th')].map((name) => name.textContent.trim()).join(' ')";
    visit(async |browser| {
        browser.open(&site.url("/?sort=-name")).await?;
        let page = browser.page();
        page.click("link", "By prefix").await?;
        browser.until("the address", "return location.search === '?sort=-name&group=prefix'").await?;
        let shown = browser.script(rows, json!([])).await?;
        ensure!(shown == "import import.b import.a mail mail-out mail-in Others zip sum", "{shown}");
        let group = browser.part("#group-mail", "");
        group.until_text("2 queues").await?;
        group.until_text("4").await?;
        // It is told of what changes.
        page.until_text("Live").await?;
        world.submit(first, vec![doc! {}; 5]).await?;
        group.until_text("9").await?;
        let violations = browser.violations().await?;
        ensure!(violations.is_empty(), "{violations:?}");
        page.click("link", "By tenant").await?;
        browser.part("#group-lux", "").until_text("1 queue").await?;
        let shown = browser.script(rows, json!([])).await?;
        ensure!(shown == "acme mail-out mail-in lux import.a No tenant zip sum import.b", "{shown}");
        // Once more is without.
        page.click("link", "By tenant").await?;
        browser.until("the address", "return location.search === '?sort=-name'").await?;
        browser.resize(390, 900).await?;
        browser.open(&site.url("/?group=prefix")).await?;
        let fits = "return document.documentElement.scrollWidth <= innerWidth";
        ensure!(browser.script(fits, json!([])).await? == true, "the page is wider than its window");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn tabs_of_a_queue_and_rules_are_accessible() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    let ids = world.submit(queue, vec![doc! { "command": "a" }; 3]).await?;
    world.set(ids[0], doc! { "status": 2, "node": "n1", "exit": { "code": 1 } }).await?;
    world.set(ids[1], doc! { "status": 0, "node": "n1", "progress": { "percent": 5 } }).await?;
    site.post("/admission", &json!({ "scope": "all", "action": "reject", "reason": "a test" })).await?;
    visit(async |browser| {
        for (theme, width) in [(Theme::Light, 390), (Theme::Dark, 1440)] {
            browser.theme(theme).await?;
            browser.resize(width, 900).await?;
            for path in [
                "/?sort=-waiting",
                "/queues/mail",
                "/queues/mail?tab=new",
                "/queues/mail?tab=settings",
                "/admission",
            ] {
                browser.open(&site.url(path)).await?;
                let violations = browser.violations().await?;
                ensure!(violations.is_empty(), "{path} in {theme:?}, {width} px: {violations:?}");
            }
        }
        Ok(())
    })
    .await?;
    site.end().await
}
