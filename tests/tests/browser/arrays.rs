//! Arrays: what failed of them, and trying that again.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_tests::browser::visit;
use disbatch_tests::{Script, eventually};
use serde_json::json;

use crate::site::Site;

/// Fails for the item 2 as long as the file is there that `broken` names.
const ELEMENT: Script<'_> = Script {
    name: "Element",
    text: r#"#!/usr/bin/env python3
import json, os, sys
params = json.load(sys.stdin)["params"]
sys.exit(7 if os.path.exists(params["broken"]) and params["item"] == 2 else 0)
"#,
};

#[tokio::test]
async fn what_failed_of_an_array_is_seen_and_retried() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.script_queue(ELEMENT, 4).await?;
    let broken = world.path().join("broken");
    std::fs::write(&broken, "")?;
    let array = json!({ "queue": queue.to_string(), "params": { "broken": broken }, ".array": "0-3" });
    site.post("/tasks", &array).await?;
    let _den = world.den_at_work("node1").await?;
    world.until_all_ended(queue).await?;
    // Its end is noted a moment after that of its last element.
    let arrays = world.database().collection::<Document>("arrays");
    eventually("the end", async || Ok(arrays.find_one(doc! { "state": "done" }).await?)).await?;
    visit(async |browser| {
        browser.open(&site.url("/arrays")).await?;
        let row = browser.part("tbody tr", "4 of 4");
        row.until_text("ended, 1 failed").await?;
        let open = "const link = document.querySelector('tbody th a'); link.click(); return true";
        browser.script(open, json!([])).await?;
        let page = browser.page();
        page.until_text("ended, 1 failed").await?;
        // Each square leads to its task and says what became of it.
        let square = "const square = document.querySelector('svg.elements .failed');
            return square.closest('a').getAttribute('href').startsWith('/tasks/') && square.textContent.startsWith('element 2: failed, ran ')";
        browser.until("a square for what failed", square).await?;
        page.click("link", "failed 1").await?;
        let elements = browser.part("#elements", "Elements");
        elements.until_text("Show all").await?;
        elements.until_text("node1").await?;
        let cells = "return document.querySelectorAll('#elements tbody tr').length === 1
            && [...document.querySelectorAll('#elements td.number')].at(-1).textContent === '7'";
        browser.until("how it ended", cells).await?;
        let failures = browser.violations().await?;
        ensure!(failures.is_empty(), "{failures:?}");
        std::fs::remove_file(&broken)?;
        page.click("button", "Retry the 1 that failed").await?;
        page.until_text("Elements without success are retried.").await?;
        page.until_text("done").await?;
        elements.until_text("There are none from there on.").await?;
        page.click("link", "Run again…").await?;
        let dialog = browser.part("#rerun", "Run elements of this array again?");
        dialog.choose("Elements", "all that have ended").await?;
        let failures = browser.violations().await?;
        ensure!(failures.is_empty(), "{failures:?}");
        dialog.click("button", "Yes, queue them again").await?;
        page.until_text("Elements are queued again.").await
    })
    .await?;
    let again =
        async || Ok((world.count(queue, doc! { "attempt": { "$gte": 2 } }).await? == 4).then_some(()));
    eventually("all elements to run again", again).await?;
    site.end().await
}
