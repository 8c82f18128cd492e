//! Finding tasks by time, text and tag, and what is done to what is found, in few clicks.

use anyhow::ensure;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::browser::{Browser, visit};
use disbatch_tests::{Script, World};
use serde_json::json;

use crate::site::{Site, few};

const FAILING: Script<'static> =
    Script { name: "Failing", text: "#!/bin/sh\necho trying >&2\necho 'no <disk>' >&2\nexit 3\n" };

/// A day in seconds.
const DAY: i64 = 86_400;

/// A task that was made so many seconds after 1970.
async fn made(world: &World, queue: QueueId, at: i64, status: i32, to: &str) -> anyhow::Result<TaskId> {
    let mut bytes = ObjectId::new().bytes();
    bytes[..4].copy_from_slice(&u32::try_from(at)?.to_be_bytes());
    let id = ObjectId::from_bytes(bytes);
    let time = DateTime::from_millis(at * 1000);
    let task = doc! {
        "_id": id, "queue": queue, "status": status, "node": "n", "params": { "to": to }, "ctime": time, "mtime": time,
        "stdout": null, "stderr": null, "complete": true,
    };
    world.tasks().insert_one(task).await?;
    Ok(TaskId(id))
}

/// The beginning of this day.
fn midnight() -> i64 {
    SystemClock.now().timestamp_millis() / 1000 / DAY * DAY
}

async fn until_closed(browser: &Browser) -> anyhow::Result<()> {
    browser.until("no dialog is open", "return !document.querySelector('dialog[open]')").await.map(drop)
}

#[tokio::test]
async fn enter_alone_deletes_nothing() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    for to in ["ada", "grace", "edsger"] {
        made(world, queue, midnight(), 2, to).await?;
    }
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks?queue={queue}&status=2"))).await?;
        let page = browser.page();
        let question = "Delete 3 tasks: failed, mail?";
        page.click("button", "Delete all").await?;
        let dialog = browser.part("dialog[open]", question);
        dialog.until_text("cannot be brought back").await?;
        browser.press("Enter").await?;
        until_closed(browser).await?;
        // Nor does it in the field for the reason.
        page.click("button", "Delete all").await?;
        dialog.fill("Reason, for the audit", "too many").await?;
        browser.press("Enter").await?;
        dialog.fill("Type 3 to confirm", "2").await?;
        browser.press("Enter").await?;
        dialog.until_text(question).await?;
        ensure!(world.count(queue, doc! {}).await? == 3);
        dialog.fill("Type 3 to confirm", "3").await?;
        dialog.click("button", "Delete them").await?;
        page.until_text("3 tasks deleted.").await
    })
    .await?;
    ensure!(world.count(queue, doc! {}).await? == 0);
    let audit = world.database().collection::<Document>("audit");
    ensure!(audit.count_documents(doc! { "reason": "too many" }).await? > 0, "the audit has the reason");
    site.end().await
}

#[tokio::test]
async fn only_what_can_be_done_to_tasks_is_offered() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let failed = made(world, queue, midnight(), 2, "ada").await?;
    let waits = world.submit(queue, vec![doc! { "to": "grace" }]).await?[0];
    visit(async |browser| {
        let page = browser.page();
        let offered = async || -> anyhow::Result<Vec<String>> {
            let all = page.names("button").await?;
            Ok(all
                .into_iter()
                .filter(|name| ["Cancel", "Retry", "Delete", "Cancel all"].contains(&name.as_str()))
                .collect())
        };
        browser.open(&site.url("/tasks?status=2")).await?;
        page.until_there("button", "Retry all").await?;
        page.click("checkbox", &format!("Select {failed}")).await?;
        page.until_there("button", "Retry").await?;
        ensure!(offered().await? == ["Retry", "Delete"], "{:?}", offered().await?);
        browser.open(&site.url("/tasks")).await?;
        page.click("checkbox", &format!("Select {waits}")).await?;
        page.until_there("button", "Cancel").await?;
        ensure!(offered().await? == ["Cancel"], "{:?}", offered().await?);
        page.click("checkbox", &format!("Select {failed}")).await?;
        page.until_there("button", "Retry").await?;
        ensure!(offered().await? == ["Cancel", "Retry", "Delete"], "{:?}", offered().await?);
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn failed_tasks_of_today_of_a_queue_are_retried_in_three_clicks() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let mail = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let other = world.queue("Disbatch::Plugin::Demo", doc! { "name": "other" }).await?;
    let today = [
        made(world, mail, midnight(), 2, "ada").await?,
        made(world, mail, midnight() + 1, 2, "grace").await?,
    ];
    let before = made(world, mail, midnight() - 1, 2, "edsger").await?;
    let elsewhere = made(world, other, midnight(), 2, "barbara").await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks?queue={mail}"))).await?;
        let page = browser.page();
        page.click("link", "Failed, made today").await?;
        page.until_no_text("edsger").await?;
        page.until_text("2 match:").await?;
        page.click("button", "Retry all").await?;
        let dialog = browser.part("dialog[open]", "Retry 2 tasks: failed, mail, created today");
        dialog.click("button", "Retry them").await?;
        page.until_text("2 tasks retried.").await?;
        few(browser, 3)
    })
    .await?;
    for task in today {
        ensure!(world.status(task).await? == -2);
    }
    ensure!(world.status(before).await? == 2 && world.status(elsewhere).await? == 2);
    site.end().await
}

#[tokio::test]
async fn what_was_made_at_three_last_night_takes_three_clicks() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    for (hour, to) in [(2, "ada"), (3, "grace"), (4, "edsger")] {
        made(world, queue, midnight() - DAY + hour * 3600, 1, to).await?;
    }
    let day = DateTime::from_millis((midnight() - DAY) * 1000).try_to_rfc3339_string()?;
    let fill =
        "for (const [name, time] of arguments[0]) document.querySelector(`[name='${name}']`).value = time";
    let times = [(".created_since", "02:50"), (".created_until", "03:10")]
        .map(|(name, time)| json!([name, format!("{}T{time}", &day[..10])]));
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.click("link", "Tasks").await?;
        page.click("DisclosureTriangle", "More filters").await?;
        // As somebody types it.
        browser.script(fill, json!([times])).await?;
        page.click("button", "Search").await?;
        page.until_text("1 task").await?;
        page.until_text("grace").await?;
        page.until_no_text("ada").await?;
        few(browser, 3)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_search_in_params_goes_on_by_itself_and_can_be_acted_on() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let needle = world.submit(queue, vec![doc! { "to": "the Needle" }]).await?[0];
    // More than are looked at at once.
    let hay = vec![doc! { "to": "hay" }; 1_000];
    for _ in 0..5 {
        world.submit(queue, hay.clone()).await?;
    }
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        let page = browser.page();
        page.fill("Params contain", "needle").await?;
        browser.press("Enter").await?;
        page.until_text("1 found in all 5,001 tasks.").await?;
        browser.part("mark", "Needle").until_text("Needle").await?;
        page.click("button", "Select all that are found").await?;
        page.until_text("1 selected:").await?;
        page.click("button", "Cancel").await?;
        browser.part("dialog[open]", "Cancel 1 task: as selected?").click("button", "Cancel it").await?;
        page.until_text("1 task cancelled.").await
    })
    .await?;
    ensure!(world.status(needle).await? == -5);
    site.end().await
}

#[tokio::test]
async fn tasks_are_found_by_their_tags() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    for (to, tag) in [("ada", "customer=7"), ("grace", "customer=8")] {
        site.post("/tasks", &json!({ "queue": queue.to_string(), "params": { "to": to }, ".tags": [tag] }))
            .await?;
    }
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        let page = browser.page();
        page.until_text("grace").await?;
        page.fill("Tags", "customer=7").await?;
        browser.press("Enter").await?;
        page.until_no_text("grace").await?;
        page.until_text("ada").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn the_list_of_failed_tasks_says_why() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.script_queue(FAILING, 1).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let _den = world.den_at_work("node1").await?;
    world.until_status(task, 2).await?;
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        let page = browser.page();
        page.until_there("link", "failed 1").await?;
        ensure!(!page.text().await?.contains("no <disk>"), "the list of all tasks has no room for it");
        page.click("link", "failed 1").await?;
        browser.part(&format!("#task-{task}"), "no <disk>").until_text("no <disk>").await?;
        // And the oldest are the first on request.
        page.click("link", "Waiting longest").await?;
        page.until_text("No task matches.").await
    })
    .await?;
    ensure!(world.task(task).await?.get_str("error")? == "no <disk>");
    site.end().await
}

#[tokio::test]
async fn a_click_with_shift_selects_a_range() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    world.submit(queue, vec![doc! { "to": "you" }; 5]).await?;
    let click = "const [at, shiftKey] = arguments;
        document.querySelectorAll('[data-select]')[at].dispatchEvent(new MouseEvent('click', { bubbles: true, shiftKey }))";
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        let page = browser.page();
        page.until_text("you").await?;
        browser.script(click, json!([1, false])).await?;
        page.until_text("1 selected:").await?;
        browser.script(click, json!([3, true])).await?;
        page.until_text("3 selected:").await?;
        browser.script(click, json!([2, true])).await?;
        page.until_text("1 selected:").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn columns_are_remembered() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    site.world.submit(queue, vec![doc! { "to": "you" }]).await?;
    visit(async |browser| {
        browser.open(&site.url("/tasks")).await?;
        let page = browser.page();
        page.click("DisclosureTriangle", "Columns").await?;
        page.click("checkbox", "Exit").await?;
        page.click("button", "Show").await?;
        page.until_there("columnheader", "Exit").await?;
        browser.open(&site.url("/tasks?status=-2")).await?;
        page.until_there("columnheader", "Exit").await?;
        page.click("DisclosureTriangle", "Columns").await?;
        page.click("checkbox", "Exit").await?;
        page.click("button", "Show").await?;
        browser.until("the usual columns", "return !document.body.innerText.includes('Exit')").await?;
        browser.open(&site.url("/tasks")).await?;
        page.until_text("you").await?;
        ensure!(!page.names("columnheader").await?.contains(&"Exit".to_owned()));
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn twenty_tasks_are_seen_at_once() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    site.world.submit(queue, vec![doc! { "a": "you", "text": "x".repeat(500) }; 30]).await?;
    let seen = "return [...document.querySelectorAll('[data-rows] > *')]
        .filter((row) => row.getBoundingClientRect().bottom <= innerHeight).length";
    visit(async |browser| {
        browser.resize(1440, 900).await?;
        browser.open(&site.url("/tasks")).await?;
        browser.page().until_text("you").await?;
        let rows = browser.script(seen, json!([])).await?;
        ensure!(rows.as_u64().is_some_and(|rows| rows >= 20), "{rows} rows");
        Ok(())
    })
    .await?;
    site.end().await
}
