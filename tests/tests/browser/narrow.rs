//! Pages in the windows of telephones.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_tests::browser::visit;
use disbatch_tests::eventually;
use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn rows_are_cards_and_the_head_is_one_line() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    world.submit(queue, vec![doc! { "a": 1 }]).await?;
    visit(async |browser| {
        browser.resize(390, 900).await?;
        for (path, shown) in [("/", "mail"), ("/tasks", "queued")] {
            browser.open(&site.url(path)).await?;
            let page = browser.page();
            page.until_text(shown).await?;
            page.until_text("Live").await?;
            let height =
                browser.script("return document.querySelector('.top').offsetHeight", json!([])).await?;
            ensure!(
                height.as_u64().is_some_and(|height| height <= 56),
                "{path}: the head is {height} pixels high"
            );
            // Cells say what they are, where a number alone would not.
            let unnamed = "return [...document.querySelectorAll('td[data-label]')].filter((cell) => \
                !getComputedStyle(cell, '::before').content.includes(cell.dataset.label)).length";
            ensure!(browser.script(unnamed, json!([])).await? == 0, "{path}: cells without a name");
            page.click("DisclosureTriangle", "Menu").await?;
            page.until_there("link", "Schedules").await?;
            page.until_there("button", "Pause updates").await?;
            let violations = browser.violations().await?;
            ensure!(violations.is_empty(), "{path}: {violations:?}");
        }
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_the_head_of_a_table_offers_can_be_used() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 0 }).await?;
    site.world.submit(queue, vec![doc! { "a": 1 }, doc! { "a": 2 }]).await?;
    visit(async |browser| {
        browser.resize(390, 900).await?;
        let page = browser.page();
        // Names of columns are only for who hears them.
        let unseen = "return [...document.querySelectorAll('thead th')].filter((cell) => {
            const isSeen = cell.getBoundingClientRect().width > 16;
            return isSeen !== Boolean(cell.querySelector('a, input'));
        }).map((cell) => cell.textContent)";
        browser.open(&site.url("/")).await?;
        page.until_text("mail").await?;
        ensure!(browser.script(unseen, json!([])).await? == json!([]), "of the overview");
        page.click("link", "Waiting").await?;
        browser.until("the address", "return location.search === '?sort=-waiting'").await?;
        browser.open(&site.url("/tasks")).await?;
        page.until_text("Live").await?;
        ensure!(browser.script(unseen, json!([])).await? == json!([]), "of the list of tasks");
        page.click("checkbox", "Select all tasks of this page").await?;
        let all = "return document.querySelectorAll('[data-select]:checked').length === 2";
        browser.until("all to be selected", all).await.map(drop)
    })
    .await?;
    site.end().await
}

/// Pages whose addresses are known.
const PAGES: [&str; 20] = [
    "/",
    "/tasks",
    "/tasks?status=2",
    "/schedules",
    "/nodes",
    "/nodes/node1",
    "/plugins",
    "/workers",
    "/workers/My::Report",
    "/audit",
    "/moments",
    "/about",
    "/arrays",
    "/locks",
    "/files",
    "/bulk",
    "/balance",
    "/admission",
    "/docs",
    "/search?q=long",
];

/// Something of everything that is shown in tables. Gives the pages that have them.
async fn furnish(site: &Site) -> anyhow::Result<Vec<String>> {
    let world = &site.world;
    let long = "a-long-name-without-any-space-in-it-".repeat(2);
    let settings = doc! { "name": &long, "threads": 4, "policy": "fair" };
    let queue = world.queue("Disbatch::Plugin::Shell", settings).await?;
    let of_queue = |fields: serde_json::Value| {
        let mut task = json!({ "queue": queue.to_string(), "params": { "command": "exit 3" } });
        task.as_object_mut()
            .into_iter()
            .for_each(|task| task.extend(fields.as_object().cloned().unwrap_or_default()));
        task
    };
    let held = of_queue(json!({ "params": { "command": format!("sleep 600 # {long}") }, ".locks": [&long] }));
    for task in [&held, &held, &of_queue(json!({ ".group": &long })), &of_queue(json!({ ".array": "0-2" }))] {
        site.post("/tasks", task).await?;
    }
    let failed = world
        .submit(queue, vec![doc! { "command": format!("echo {} >&2; exit 3", long.repeat(3)) }])
        .await?[0];
    let nightly = json!({
        "name": &long, "queue": queue.to_string(), "cron": "30 2 * * *", "zone": "Europe/Berlin",
        "params": { "command": "true" },
    });
    site.post("/schedules", &nightly).await?;
    site.post(&format!("/schedules/{long}/run"), &json!({})).await?;
    site.post(
        "/admission",
        &json!({ "scope": "queue", "value": &long, "action": "reject", "reason": &long }),
    )
    .await?;
    let job = json!({ "action": "retry", "filter": { "queue": queue.to_string() }, "reason": &long });
    site.post("/bulk", &job).await?;
    let worker =
        json!({ "_id": "My::Report", "engine": "http", "http": { "url": "https://reports.example/run" } });
    site.post("/workers", &worker).await?;
    world.until_status(failed, 2).await?;
    let arrays = world.database().collection::<Document>("arrays");
    let array =
        eventually("an array", async || Ok(arrays.find_one(doc! {}).await?)).await?.get_object_id("_id")?;
    let mut pages: Vec<String> = PAGES.map(str::to_owned).into();
    pages.extend([
        format!("/queues/{queue}"),
        format!("/queues/{queue}/groups"),
        format!("/queues/{queue}/shadow"),
    ]);
    pages.push(format!("/tasks/{failed}"));
    pages.extend([format!("/schedules/{long}"), format!("/arrays/{array}"), format!("/locks/{long}")]);
    Ok(pages)
}

#[tokio::test]
async fn no_table_is_wider_than_the_window_of_a_telephone() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let _den = site.world.den_at_work("node1").await?;
    let pages = furnish(&site).await?;
    visit(async |browser| {
        browser.resize(390, 900).await?;
        let mut tables = 0;
        for path in pages {
            browser.open(&site.url(&path)).await?;
            // Folded parts have tables, too. What a chart has made is no table of ours.
            let look = "document.querySelectorAll('main details').forEach((part) => { part.open = true; });
                const tables = [...document.querySelectorAll('main table:not(.u-legend)')];
                const isWide = (table) => table.getBoundingClientRect().right > innerWidth || table.scrollWidth > table.clientWidth + 1;
                const unnamed = [...document.querySelectorAll('main td[data-label]:not([data-label=\"\"])')].filter((cell) =>
                    cell.checkVisibility() && !getComputedStyle(cell, '::before').content.includes(cell.dataset.label));
                const page = document.documentElement;
                return [tables.length, tables.filter(isWide).length, unnamed.length, page.scrollWidth > innerWidth ? 1 : 0]";
            let found = browser.script(look, json!([])).await?;
            let [all, faults @ ..] = found.as_array().map(Vec::as_slice).unwrap_or_default() else {
                anyhow::bail!("{path}: {found}");
            };
            ensure!(faults.iter().all(|count| count == 0), "{path}: [tables, too wide, without names, page too wide]: {found}");
            tables += all.as_u64().unwrap_or(0);
        }
        ensure!(tables > 25, "only {tables} tables were there");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn lists_are_not_cut_in_windows_of_laptops() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let _den = site.world.den_at_work("worker-1.example.com").await?;
    furnish(&site).await?;
    visit(async |browser| {
        for width in [1000, 1440] {
            browser.resize(width, 900).await?;
            for path in
                ["/", "/tasks", "/tasks?status=2", "/schedules", "/nodes", "/audit", "/bulk", "/admission"]
            {
                browser.open(&site.url(path)).await?;
                let hidden = "return [...document.querySelectorAll('main .region')]
                    .map((region) => region.scrollWidth - region.clientWidth).filter((hidden) => hidden > 1)";
                let hidden = browser.script(hidden, json!([])).await?;
                ensure!(hidden == json!([]), "{path}: {hidden} pixels are off the screen at {width}");
            }
        }
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn filters_are_behind_a_button_that_says_how_many_are_set() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    site.world.submit(queue, vec![doc! { "a": 1 }]).await?;
    visit(async |browser| {
        browser.resize(390, 900).await?;
        for path in ["/tasks?queue=mail&status=-2", "/audit?what=queue+update&by=ann"] {
            browser.open(&site.url(path)).await?;
            let page = browser.page();
            page.until_there("DisclosureTriangle", "Filters (2)").await?;
            let seen = "return document.querySelector('form[role=search]:not(.jump)').checkVisibility()";
            ensure!(browser.script(seen, json!([])).await? == false, "{path}: the form is in the way");
            page.click("DisclosureTriangle", "Filters (2)").await?;
            browser.until("the form", seen).await?;
            browser.resize(1000, 900).await?;
            browser.open(&site.url(path)).await?;
            browser.until("the form in a wide window", seen).await?;
            browser.resize(390, 900).await?;
        }
        Ok(())
    })
    .await?;
    site.end().await
}
