//! All times are in one zone, that of whoever looks.

use anyhow::ensure;
use bson::{DateTime, Document, doc};
use disbatch_tests::browser::visit;

use crate::site::Site;

/// 2026-11-20 08:24:27 in UTC.
const AT: DateTime = DateTime::from_millis(1_795_163_067_000);

#[tokio::test]
async fn histories_and_charts_are_in_the_zone_that_was_chosen() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let task = world.submit(queue, vec![doc! { "to": "ada" }]).await?[0];
    world.set(task, doc! { "ctime": AT, "born": AT }).await?;
    visit(async |browser| {
        browser.time_zone("Europe/Berlin").await?;
        browser.open(&site.url(&format!("/tasks/{task}"))).await?;
        let page = browser.page();
        page.until_text("When (Europe/Berlin)").await?;
        page.until_text("2026-11-20 09:24:27").await?;
        browser.open(&site.url(&format!("/queues/{queue}"))).await?;
        browser.part("figure", "Time (Europe/Berlin)").until_text("Time (Europe/Berlin)").await?;
        // At once, and on all pages.
        page.choose("Time zone", "UTC").await?;
        browser.part("figure", "Time (UTC)").until_text("Time (UTC)").await?;
        browser.open(&site.url(&format!("/tasks/{task}"))).await?;
        page.until_text("When (UTC)").await?;
        page.until_text("2026-11-20 08:24:27").await?;
        let title = "return [...document.querySelectorAll('time')].some((time) => time.title === '2026-11-20 08:24:27 UTC')";
        browser.until("the time in full", title).await?;
        page.choose("Time zone", "Another zone…").await?;
        page.until_text("Pages tell all times in UTC").await?;
        browser.part("main", "Time zone").fill("Time zone", "Asia/Tokyo").await?;
        page.click("button", "Use this zone").await?;
        page.until_text("2026-11-20 17:24:27").await?;
        page.until_text("When (Asia/Tokyo)").await?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.is_empty(), "{complaints:?}");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn fields_have_times_of_the_zone_that_their_labels_name() -> anyhow::Result<()> {
    let site = Site::new().await?;
    visit(async |browser| {
        browser.time_zone("Europe/Berlin").await?;
        // The first page is asked for before the server can know the zone.
        browser.open(&site.url("/tasks?.created_since=2026-11-20T08:24:27Z")).await?;
        let page = browser.page();
        let shows = |zone: &str, time: &str| {
            format!(
                "const field = document.querySelector('[name=\".created_since\"]');
                return field.value === '{time}' && field.closest('label').textContent.includes('({zone})')"
            )
        };
        browser.until("the time in Berlin", &shows("Europe/Berlin", "2026-11-20T09:24:27")).await?;
        page.choose("Time zone", "UTC").await?;
        browser.until("the time in UTC", &shows("UTC", "2026-11-20T08:24:27")).await?;
        // What somebody has typed stays. All of the form is read in the other zone from then on, and its labels say so.
        page.fill("Params contain", "ada").await?;
        page.choose("Time zone", "My time: Europe/Berlin").await?;
        page.until_text("Times in forms are those of Europe/Berlin now.").await?;
        browser.until("another label", &shows("Europe/Berlin", "2026-11-20T08:24:27")).await?;
        let typed = "return document.querySelector('[name=\".text\"]').value === 'ada'";
        browser.until("what was typed", typed).await.map(drop)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn pages_without_script_and_their_forms_keep_to_the_zone() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let task = world.submit(queue, vec![doc! { "to": "ada" }]).await?[0];
    world.set(task, doc! { "ctime": AT, "born": AT }).await?;
    let get = async |path: String, cookie: &str| {
        let request = reqwest::Client::new().get(site.url(&path)).header("accept", "text/html");
        anyhow::Ok(request.header("cookie", cookie).send().await?.text().await?)
    };
    let page = get(format!("/tasks/{task}"), "disbatch_zone=Asia/Tokyo").await?;
    ensure!(
        page.contains("When (<span data-zone>Asia/Tokyo</span>)") && page.contains(">2026-11-20 17:24:27<")
    );
    // It was the next day in Berlin already.
    let audit = world.database().collection::<Document>("audit");
    let late = DateTime::parse_rfc3339_str("2026-11-19T23:30:00Z")?;
    audit.insert_one(doc! { "at": late, "by": "night owl", "what": "queue update" }).await?;
    let day = "/audit?from=2026-11-20&to=2026-11-20";
    ensure!(get(day.into(), "disbatch_zone=mine:Europe/Berlin").await?.contains("night owl"));
    ensure!(!get(day.into(), "").await?.contains("night owl"));
    site.end().await
}
