//! What operators do every day, from the overview on, and how many clicks that may take: docs/pages.md has the same numbers.

use anyhow::ensure;
use bson::oid::ObjectId;
use bson::{DateTime, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::World;
use disbatch_tests::browser::{Browser, visit};

use crate::site::{Site, few};

const SHELL: &str = "Disbatch::Plugin::Shell";

/// A day in milliseconds.
const DAY: i64 = 86_400_000;

/// Runs until it is ended.
const FOREVER: &str = "echo at work; while :; do sleep 0.1; done";

async fn shell(world: &World, command: &str, settings: bson::Document) -> anyhow::Result<(QueueId, TaskId)> {
    let mut fields = doc! { "name": "mail", "threads": 1 };
    fields.extend(settings);
    let queue = world.queue(SHELL, fields).await?;
    Ok((queue, world.submit(queue, vec![doc! { "command": command }]).await?[0]))
}

/// Begins a job.
async fn at_overview(browser: &Browser, site: &Site) -> anyhow::Result<()> {
    browser.open(&site.url("/")).await?;
    browser.clicks();
    Ok(())
}

#[tokio::test]
async fn why_a_task_waits_takes_two() -> anyhow::Result<()> {
    let site = Site::new().await?;
    shell(&site.world, "echo at last", doc! { "paused": true }).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        browser.page().click("link", "mail").await?;
        browser.part("#queue-next", "").click("link", "echo at last").await?;
        browser.part("#task-why", "is paused").until_text("The queue mail is paused.").await?;
        few(browser, 2)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn retrying_what_failed_today_in_a_queue_takes_three() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let (queue, today) = shell(world, "exit 3", doc! { "threads": 0 }).await?;
    world.set(today, doc! { "status": 2 }).await?;
    let mut bytes = ObjectId::new().bytes();
    let before = u32::try_from((SystemClock.now().timestamp_millis() - 2 * DAY) / 1000)?;
    bytes[..4].copy_from_slice(&before.to_be_bytes());
    let before = ObjectId::from_bytes(bytes);
    world.tasks().insert_one(doc! { "_id": before, "queue": queue, "status": 2, "params": {} }).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        let page = browser.page();
        page.click("link", "Failed tasks of mail, made today").await?;
        page.click("button", "Retry all").await?;
        let dialog = browser.part("dialog[open]", "Retry 1 task: failed, mail, created today");
        dialog.click("button", "Retry it").await?;
        page.until_text("1 task retried.").await?;
        few(browser, 3)
    })
    .await?;
    ensure!(world.status(today).await? == -2 && world.status(TaskId(before)).await? == 2);
    site.end().await
}

#[tokio::test]
async fn following_a_task_takes_two_and_cancelling_it_two_more() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let (_, task) = shell(world, FOREVER, doc! {}).await?;
    let _den = world.den_at_work("node1").await?;
    world.until_status(task, 0).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        let page = browser.page();
        page.click("link", "mail").await?;
        browser.part("#queue-running", "").click("link", FOREVER).await?;
        browser.part("#log-stdout", "at work").until_text("at work").await?;
        few(browser, 2)?;
        page.click("link", "Cancel").await?;
        browser.part("dialog[open]", "Cancel this task?").click("button", "Yes, cancel it").await?;
        browser.part("#task-head", "cancelled").until_text("cancelled").await?;
        few(browser, 2)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn finding_a_task_by_what_it_has_takes_one() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let (_, task) = shell(&site.world, "convert the-needle.png", doc! {}).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        let page = browser.page();
        page.click("link", "Tasks").await?;
        page.fill("Params contain", "needle").await?;
        browser.press("Enter").await?;
        browser.part(&format!("#task-{task}"), "needle").until_text("convert the-needle.png").await?;
        few(browser, 1)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn threads_and_pauses_take_one_where_they_stand() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    shell(world, "true", doc! { "threads": 0 }).await?;
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        let page = browser.page();
        page.fill("Threads of mail", "4").await?;
        browser.press("Enter").await?;
        page.until_text("Threads of mail: 4.").await?;
        few(browser, 0)?;
        page.click("switch", "Running tasks of mail").await?;
        page.until_text("mail is paused.").await?;
        few(browser, 1)?;
        let node = browser.part("#nodes", "node1");
        let switch = node.names("switch").await?;
        node.click("switch", &switch[0]).await?;
        page.until_text("node1 claims nothing more.").await?;
        few(browser, 1)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_schedule_takes_three() -> anyhow::Result<()> {
    let site = Site::new().await?;
    shell(&site.world, "true", doc! { "threads": 0 }).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        let page = browser.page();
        page.click("link", "Schedules").await?;
        page.click("link", "New schedule").await?;
        let form = browser.part("#schedule-form", "Name");
        form.fill("Name", "nightly").await?;
        form.choose("Queue", "mail").await?;
        form.fill("Parameters as JSON", "{\"command\": \"true\"}").await?;
        form.fill("Times", "30 3 * * 1-5").await?;
        form.fill("Time zone", "Europe/Berlin").await?;
        browser.part("#schedule-preview", "").until_text("At 03:30, Monday to Friday").await?;
        form.click("button", "Create schedule").await?;
        page.until_text("nightly is saved.").await?;
        few(browser, 3)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_was_changed_yesterday_takes_two() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let (queue, _) = shell(world, "true", doc! { "threads": 0 }).await?;
    let yesterday = DateTime::from_millis(SystemClock.now().timestamp_millis() - DAY);
    let audit = world.database().collection::<bson::Document>("audit");
    audit
        .insert_one(doc! {
            "at": yesterday, "by": "ann from 10.0.0.1", "what": "queue update", "queue": queue,
            "object": { "kind": "queue", "id": queue, "name": "mail" },
            "before": { "threads": 1 }, "after": { "threads": 0 },
        })
        .await?;
    let day = yesterday.try_to_rfc3339_string()?[..10].to_owned();
    visit(async |browser| {
        at_overview(browser, &site).await?;
        let page = browser.page();
        page.click("DisclosureTriangle", "More").await?;
        page.click("link", "Audit").await?;
        page.until_text("Who did what to which").await?;
        // As somebody types it.
        let fill = "for (const name of ['from', 'to']) document.querySelector(`[name='${name}']`).value = arguments[0];
            document.querySelector('form.search').requestSubmit()";
        browser.script(fill, serde_json::json!([day])).await?;
        page.until_text("ann").await?;
        few(browser, 2)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn submitting_a_task_takes_three() -> anyhow::Result<()> {
    let site = Site::new().await?;
    shell(&site.world, "true", doc! { "threads": 0 }).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        let page = browser.page();
        page.click("link", "mail").await?;
        page.click("link", "New tasks").await?;
        let form = browser.part("#by-form", "command");
        form.fill("command", "echo made by hand").await?;
        form.click("button", "Submit the task").await?;
        page.until_text("submitted").await?;
        few(browser, 3)
    })
    .await?;
    let made = site.world.tasks().find_one(doc! { "params.command": "echo made by hand" }).await?;
    ensure!(made.is_some(), "it is not there");
    site.end().await
}

#[tokio::test]
async fn what_a_queue_runs_next_takes_one() -> anyhow::Result<()> {
    let site = Site::new().await?;
    shell(&site.world, "comes first", doc! { "threads": 0, "sort": "fifo" }).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        browser.page().click("link", "mail").await?;
        browser.part("#queue-next", "comes first").until_text("comes first").await?;
        few(browser, 1)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn an_output_takes_three_and_another_attempt_one_more() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let mark = world.path().join("mark").display().to_string();
    let command = format!("[ -e {mark} ] && echo second || echo first; touch {mark}; exit 1");
    let settings = doc! { "max_attempts": 2, "backoff": { "base": 0 } };
    let (_, task) = shell(world, &command, settings).await?;
    let _den = world.den_at_work("node1").await?;
    world.until_status(task, 2).await?;
    visit(async |browser| {
        at_overview(browser, &site).await?;
        browser.page().click("link", "mail").await?;
        browser.part("#queue-failed", "exit code 1").click("link", &command).await?;
        let log = browser.part("#log-stdout", "");
        log.until_text("second").await?;
        few(browser, 2)?;
        log.click("link", "Download").await?;
        few(browser, 1)?;
        // One attempt beside the other: there, and back.
        let tabs = browser.part("#task-attempts", "Attempt 1");
        tabs.click("link", "Attempt 1 failed").await?;
        log.until_text("first").await?;
        tabs.click("link", "Attempt 2 failed").await?;
        log.until_text("second").await?;
        few(browser, 2)
    })
    .await?;
    site.end().await
}
