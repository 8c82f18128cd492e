//! A schedule from its form to its runs.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_tests::browser::visit;
use disbatch_tests::{Script, World, eventually};
use serde_json::json;

use crate::site::{Site, was_refused};

/// Waits until a schedule has this in the database.
async fn until_schedule(world: &World, what: Document) -> anyhow::Result<()> {
    let schedules = world.database().collection::<Document>("schedules");
    let name = format!("a schedule with {what}");
    eventually(&name, async || Ok(schedules.find_one(what.clone()).await?)).await.map(drop)
}

#[tokio::test]
async fn a_schedule_is_made_previewed_run_and_paused() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports", "threads": 1 }).await?;
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.click("link", "Schedules").await?;
        page.until_text("There are no schedules yet.").await?;
        page.click("link", "New schedule").await?;
        let form = browser.part("#schedule-form", "Name");
        let preview = browser.part("#schedule-preview", "");
        preview.until_text("Fill in the times").await?;
        form.fill("Name", "nightly").await?;
        form.choose("Queue", "reports").await?;
        form.fill("Parameters as JSON", "{\"command\": \"echo all is well\"}").await?;
        // What is wrong is told while it is typed, and what would happen is shown.
        form.fill("Times", "61 2 * * *").await?;
        preview.until_text("the field minute").await?;
        form.fill("Times", "30 2 * * *").await?;
        preview.until_text("The next 20 times are from").await?;
        form.fill("Time zone", "Europe/Berlin").await?;
        preview.until_text("in Europe/Berlin").await?;
        preview.until_text("At 02:30 every day").await?;
        form.click("button", "Create schedule").await?;
        page.until_text("nightly is saved.").await?;
        until_schedule(world, doc! { "name": "nightly", "zone": "Europe/Berlin", "cron": "30 2 * * *" })
            .await?;

        // It leads to the schedule.
        browser.part("#schedule-next", "").until_text("The next 20 times are from").await?;
        page.until_text("It has no runs to show.").await?;
        page.click("button", "Run now").await?;
        page.until_text("is made.").await?;
        browser.part("#schedule-runs", "").until_text("succeeded").await?;
        browser.part("#schedule-figures", "").until_text("it took").await?;

        let head = browser.part("#schedule-head", "nightly");
        page.click("switch", "Active").await?;
        page.until_text("nightly is paused.").await?;
        head.until_text("paused").await?;
        until_schedule(world, doc! { "name": "nightly", "paused": true }).await?;
        page.click("button", "Undo").await?;
        page.until_text("Undone.").await?;
        head.until_text("active").await?;
        until_schedule(world, doc! { "name": "nightly", "paused": false }).await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_is_wrong_with_a_field_is_said_at_the_field() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports" }).await?;
    visit(async |browser| {
        browser.resize(1_440, 600).await?;
        browser.open(&site.url(&format!("/schedules/new?queue={queue}"))).await?;
        let form = browser.part("#schedule-form", "Name");
        form.fill("Name", "nightly").await?;
        form.fill("Times", "30 2 * * mon-fri").await?;
        let preview = browser.part("#schedule-preview", "");
        preview.until_text("At 02:30, Monday to Friday").await?;
        form.fill("Parameters as JSON", "{\"command\"").await?;
        form.click("button", "Create schedule").await?;
        form.until_text("params is not JSON").await?;
        let marked = "const field = document.activeElement;
            const words = document.querySelector('.complaint').getBoundingClientRect();
            return field.name === 'params' && field.getAttribute('aria-invalid') === 'true'
                && field.getAttribute('aria-describedby').includes('complaint-') && words.top >= 0 && words.bottom <= innerHeight";
        browser.until("the field that is wrong", marked).await?;
        // When it would run stays in sight.
        let seen = "const { top, bottom } = document.querySelector('#schedule-preview strong').getBoundingClientRect();
            document.querySelector('[name=overlap]').scrollIntoView();
            return top >= 0 && bottom <= innerHeight";
        browser.until("the next times", seen).await?;
        was_refused(browser).await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn parameters_are_given_in_the_fields_of_the_plugin() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports" }).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/schedules/new?queue={queue}"))).await?;
        let form = browser.part("#schedule-form", "Name");
        form.fill("Name", "nightly").await?;
        form.fill("Times", "30 2 * * *").await?;
        form.fill("command", "echo all is well").await?;
        let written = "return document.querySelector('#schedule-params').value.includes('echo all is well')";
        browser.until("the parameters as JSON", written).await?;
        // What was typed just before is saved, too.
        let at_once = "const form = document.querySelector('#schedule-form');
            const field = form.elements['/command'];
            field.value = 'echo at once';
            field.dispatchEvent(new Event('input', { bubbles: true }));
            form.requestSubmit();
            return true";
        browser.script(at_once, json!([])).await?;
        browser.page().until_text("nightly is saved.").await?;
        until_schedule(world, doc! { "name": "nightly", "params": { "command": "echo at once" } }).await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_the_fields_of_the_plugin_cannot_hold_stays_until_they_are_used() -> anyhow::Result<()> {
    let manifest = json!({ "name": "Report", "command": ["./run"], "params": { "type": "object", "properties": {
        "since": { "type": "string", "format": "date" }, "shop": { "type": "string" },
    } } });
    let script = Script { name: "Report", text: "#!/bin/sh\n" };
    let site = Site::with(|world| script.install_as(&world.plugins(), &manifest)).await?;
    let world = &site.world;
    let queue = world.queue("Report", doc! { "name": "reports" }).await?;
    let id = bson::oid::ObjectId::new();
    let params = doc! { "since": "yesterday", "shop": "A" };
    let schedule =
        doc! { "_id": id, "name": "nightly", "queue": queue, "cron": "0 3 * * *", "params": params };
    world.database().collection::<Document>("schedules").insert_one(schedule).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/schedules/{id}/edit"))).await?;
        let form = browser.part("#schedule-form", "Name");
        form.fill("shop optional", "B").await?;
        let written = "const params = JSON.parse(document.querySelector('#schedule-params').value);
            return params.shop === 'B' && params.since === 'yesterday'";
        browser.until("both parameters", written).await.map(drop)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn the_past_is_made_up_for_when_it_was_confirmed() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports", "threads": 0 }).await?;
    let nightly = serde_json::json!({
        "name": "nightly", "queue": "reports", "cron": "0 3 * * *", "params": { "command": "true" }, "overlap": "allow",
    });
    site.post("/schedules", &nightly).await?;
    visit(async |browser| {
        browser.open(&site.url("/schedules/nightly")).await?;
        let page = browser.page();
        let form = browser.part("#backfill", "From");
        form.fill("From", "soon").await?;
        form.fill("At most", "7").await?;
        form.click("button", "Preview").await?;
        form.until_text("from must be a time").await?;
        let typed = "return document.querySelector('#backfill [name=limit]').value === '7'";
        browser.until("what was typed", typed).await?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.iter().all(|text| text.contains("400")), "{complaints:?}");
        form.fill("From", "2025-03-01").await?;
        form.fill("Until", "2025-03-04").await?;
        form.click("button", "Preview").await?;
        page.until_text("Create 3 tasks of nightly?").await?;
        ensure!(world.tasks().count_documents(doc! {}).await? == 0, "nothing was to happen yet");
        page.click("button", "Create 3 tasks").await?;
        browser.part("#schedule-runs", "").until_text("The last 3 runs").await?;
        ensure!(world.tasks().count_documents(doc! {}).await? == 3, "there are others");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_change_that_was_overtaken_is_refused_and_nothing_is_lost() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Shell", doc! { "name": "reports", "threads": 0 }).await?;
    let nightly = serde_json::json!({ "name": "nightly", "queue": "reports", "cron": "0 3 * * *", "params": { "command": "true" } });
    site.post("/schedules", &nightly).await?;
    visit(async |browser| {
        browser.open(&site.url("/schedules/nightly/edit")).await?;
        let form = browser.part("#schedule-form", "Name");
        form.fill("Times", "0 4 * * *").await?;
        site.post("/schedules/nightly", &serde_json::json!({ "description": "by somebody else" })).await?;
        form.click("button", "Save schedule").await?;
        form.until_text("was changed meanwhile").await?;
        let kept = "return document.querySelector('#schedule-cron').value === '0 4 * * *'";
        browser.until("what was typed", kept).await?;
        let complaints = browser.complaints().await?;
        ensure!(
            complaints.iter().all(|text| text.contains("409")) && !complaints.is_empty(),
            "{complaints:?}"
        );
        until_schedule(world, doc! { "name": "nightly", "cron": "0 3 * * *" }).await
    })
    .await?;
    site.end().await
}
