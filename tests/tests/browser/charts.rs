//! Charts: what they show, and where they lead.

use anyhow::ensure;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::QueueId;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn a_chart_leads_to_the_tasks_of_its_time() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/queues/{queue}"))).await?;
        browser.until("charts", "return document.querySelectorAll('.u-over').length === 3").await?;
        // Another time is that of all charts.
        let charts = browser.part("section:has(> .columns > figure)", "Throughput");
        charts.click("link", "Waiting time, 24h").await?;
        let all = "return [...document.querySelectorAll('figure [aria-current]')].map((link) => link.textContent.slice(-3)).join()
            === '24h,24h,24h' && document.querySelector('.u-axis, .u-legend') !== null";
        browser.until("24 hours in all charts", all).await?;
        // What is not over yet is not drawn as a fall.
        let open = "const [figure] = document.querySelectorAll('figure[data-chart]');
            return fetch(figure.dataset.chart).then((answer) => answer.json()).then(({ series }) => series[0].values.at(-1) === null)";
        ensure!(browser.script(open, json!([])).await? == true, "the last step is drawn");
        let range = "return document.querySelector('a[data-is=tasks]').href.includes('.created_since=')";
        browser.until("a link to the tasks of this time", range).await?;
        let click = "const over = document.querySelector('.u-over');
            const { left, top, width, height } = over.getBoundingClientRect();
            const at = { clientX: left + width / 2, clientY: top + height / 2, bubbles: true };
            for (const type of ['mousemove', 'mousedown', 'mouseup', 'click']) over.dispatchEvent(new MouseEvent(type, at));";
        browser.script(click, json!([])).await?;
        let led = "return location.pathname === '/tasks' && location.search.includes('.created_since=') && location.search.includes('.created_until=')";
        browser.until("the tasks of a step", led).await.map(drop)
    })
    .await?;
    site.end().await
}

/// What ended in a queue, or in all of them, some minutes ago.
fn minute(queue: Option<QueueId>, at: i64, succeeded: i64, failed: i64) -> Document {
    let at = DateTime::from_millis(at);
    let queue = queue.map_or(Bson::Null, |queue| queue.0.into());
    doc! { "_id": { "queue": queue, "at": at }, "at": at, "succeeded": succeeded, "failed": failed }
}

#[tokio::test]
async fn the_chart_of_all_queues_has_a_layer_for_each_of_the_largest() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let [mail, import] = ["mail", "<import>"]
        .map(async |name| world.queue("Disbatch::Plugin::Demo", doc! { "name": name }).await);
    let (mail, import) = (mail.await?, import.await?);
    let now = SystemClock.now().timestamp_millis();
    let ago = |minutes: i64| (now / 60_000 - minutes) * 60_000;
    let mut minutes = Vec::new();
    for at in [20, 19, 18].map(ago) {
        minutes.extend([
            minute(Some(mail), at, 6, 1),
            minute(Some(import), at, 3, 0),
            minute(None, at, 14, 1),
        ]);
    }
    world.database().collection::<Document>("series").insert_many(minutes).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let labels = "return [...document.querySelectorAll('.u-legend .u-label')].map((label) => label.textContent).slice(1).join('; ')
            === 'mail; <import>; Other queues; Failed'";
        browser.until("a layer for each queue", labels).await?;
        // At each place it says what the queue itself has, however high its layer lies.
        let over = "const over = document.querySelector('.u-over');
            const { left, top, width, height } = over.getBoundingClientRect();
            const at = { clientX: left + width * (40 / 59), clientY: top + height / 2, bubbles: true };
            over.dispatchEvent(new MouseEvent('mouseenter', at)); over.dispatchEvent(new MouseEvent('mousemove', at));";
        browser.script(over, json!([])).await?;
        let values = "return [...document.querySelectorAll('.u-legend .u-value')].map((value) => value.textContent).slice(1).join()
            === '7,3,5,1'";
        browser.until("the numbers of a minute", values).await?;
        let chart = browser.part("figure", "Throughput");
        chart.click("link", "24h").await?;
        browser.until("the layers of a day", "return document.querySelectorAll('.u-legend .u-series').length === 5").await.map(drop)
    })
    .await?;
    site.end().await
}
