//! Charts: what they show, and where they lead.

use anyhow::ensure;
use bson::doc;
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
