//! Whatever comes from a task is text.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::Script;
use disbatch_tests::browser::{Browser, visit};
use serde_json::json;

use crate::site::Site;

/// What must be shown as it is. It would open an alert, at which the driver does nothing any more.
const SCRIPT: &str = "<script>alert(1)</script>";
const IMAGE: &str = r#"<img src=x onerror="alert(2)">"#;
const BREAKOUT: &str = "</pre></textarea><svg onload=alert(3)>";

/// Prints them to both streams, and ends when the file `go` is there.
const PRINTER: Script<'_> = Script {
    name: "Hostile",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
for stream in (sys.stdout, sys.stderr):
    print("begin " + params["script"] + params["image"] + params["breakout"] + " end", file=stream, flush=True)
while not os.path.exists(params["go"]):
    time.sleep(0.02)
sys.exit(1)
"#,
};

/// Waits until all is shown, and checks that nothing of it has become a part of the page.
async fn shows_text_alone(browser: &Browser) -> anyhow::Result<()> {
    browser.page().until_text(&format!("begin {SCRIPT}{IMAGE}{BREAKOUT} end")).await?;
    let count = "return [...document.querySelectorAll('script, [onerror], [onload]')]
        .filter((element) => element.outerHTML.includes('alert(')).length";
    let alien = browser.script(count, json!([])).await?;
    ensure!(alien == 0, "{alien} elements come from the task");
    Ok(())
}

#[tokio::test]
async fn markup_in_params_and_output_is_text_and_runs_nothing() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.script_queue(PRINTER, 1).await?;
    world.update_queue(queue, doc! { "name": format!("queue {SCRIPT}") }).await?;
    let go = world.path().join("go");
    let params = doc! {
        "script": SCRIPT, "image": IMAGE, "breakout": BREAKOUT, IMAGE: SCRIPT, "go": go.display().to_string(),
    };
    let id = world.submit(queue, vec![params]).await?[0];
    let _den = world.den_at_work("node1").await?;
    world.until_status(id, 0).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        shows_text_alone(browser).await?;
        std::fs::write(&go, "")?;
        world.until_status(id, 2).await?;
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        shows_text_alone(browser).await?;
        for page in ["/", "/tasks"] {
            browser.open(&site.url(page)).await?;
            browser.page().until_text(SCRIPT).await?;
        }
        Ok(())
    })
    .await?;
    site.end().await
}
