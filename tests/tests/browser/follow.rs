//! A task that runs while somebody looks.

use anyhow::Context;
use bson::doc;
use disbatch_tests::Script;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

/// Prints a line, and one more for each of two files that comes to be.
const STEPS: Script<'_> = Script {
    name: "Steps",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
print("the first line", flush=True)
for name in ("second", "third"):
    while not os.path.exists(os.path.join(params["folder"], name)):
        time.sleep(0.02)
    print("the " + name + " line", flush=True)
"#,
};

#[tokio::test]
async fn a_running_task_is_followed_without_loading_its_page_again() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let folder = world.path().display().to_string();
    let (id, _den) = site.running(STEPS, doc! { "folder": folder }).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.until_text("the first line").await?;
        page.until_text("running").await?;
        // It would go with the page.
        browser.script("globalThis.stillTheSame = true", json!([])).await?;
        for (step, last) in [("second", false), ("third", true)] {
            std::fs::write(world.path().join(step), "")?;
            page.until_text(&format!("the {step} line")).await?;
            if last {
                page.until_text("succeeded").await?;
            }
        }
        assert_eq!(browser.script("return globalThis.stillTheSame", json!([])).await?, true);
        Ok(())
    })
    .await?;
    site.end().await
}

/// Writes what its step is told to, to one of the streams, and waits for a file if it is told which.
const STEPPED: Script<'_> = Script {
    name: "Stepped",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
for stream in (sys.stdout, sys.stderr):
    print(params.get(stream.name.strip("<>"), ""), end="", file=stream, flush=True)
while "until" in params and not os.path.exists(params["until"]):
    time.sleep(0.02)
"#,
};

#[tokio::test]
async fn each_step_has_a_heading_where_its_lines_begin_and_nowhere_else() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.script_queue(STEPPED, 1).await?;
    let until = |name: &str| world.path().join(name).display().to_string();
    let steps = json!([
        { "name": "get", "params": { "stdout": "got\n" } },
        { "name": "quiet", "params": {} },
        { "name": "use", "params": { "stderr": "used\nagain\n", "until": until("first") } },
        { "name": "send", "params": { "stdout": "sent\n", "stderr": "warned\n", "until": until("second") } },
        { "name": "end", "params": {} },
    ]);
    site.post("/tasks", &json!({ "queue": queue.to_string(), "params": {}, ".steps": steps })).await?;
    let task = world.tasks().find_one(doc! { "queue": queue }).await?.context("no task")?;
    let id = task.get_object_id("_id")?.to_hex();
    let _den = world.den_at_work("node1").await?;
    let lines = |stream: &str, expected: &[&str]| {
        format!(
            "return JSON.stringify([...document.querySelectorAll('#log-{stream} pre > div')].map((line) => \
             line.matches('.step') ? line.textContent.replace(/:.*/, ':') \
             : [...line.childNodes].filter((part) => !part.matches?.('.time')).map((part) => part.textContent).join(''))) === '{}'",
            json!(expected)
        )
    };
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        browser.until("the first step", &lines("stdout", &["1. get:", "got"])).await?;
        let third = lines("stderr", &["3. use:", "used", "again"]);
        browser.until("the third step, and not the one before", &third).await?;
        std::fs::write(until("first"), "")?;
        let out = lines("stdout", &["1. get:", "got", "4. send:", "sent"]);
        let err = lines("stderr", &["3. use:", "used", "again", "4. send:", "warned"]);
        for (what, lines) in [("stdout of the fourth step", &out), ("its stderr", &err)] {
            browser.until(what, lines).await?;
        }
        std::fs::write(until("second"), "")?;
        browser.page().until_text("5 of 5 steps have succeeded.").await?;
        for (what, lines) in [("stdout as it was", &out), ("stderr as it was", &err)] {
            browser.until(what, lines).await?;
        }
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        for (what, lines) in [("stdout of the page", &out), ("its stderr", &err)] {
            browser.until(what, lines).await?;
        }
        Ok(())
    })
    .await?;
    site.end().await
}
