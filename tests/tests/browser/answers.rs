//! What a task asks a person: on its page, on the overview, and by a link, with and without script.

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_core::model::TaskId;
use disbatch_tests::browser::visit;
use disbatch_tests::{Den, Script};

use crate::site::Site;

/// Asks, and prints the answer.
const ASKS: Script<'_> = Script {
    name: "Asks",
    text: r#"#!/usr/bin/env python3
import json, os, sys
task = json.load(sys.stdin)
if "answer" in task:
    print("told", json.dumps(task["answer"]["value"], sort_keys=True))
    sys.exit()
form = {"properties": {"go": {"type": "boolean"}, "comment": {"type": "string"}}, "required": ["go"]}
with open(f"/dev/fd/{os.environ['DISBATCH_CONTROL_FD']}", "w") as control:
    control.write(json.dumps({"await": {"title": "Deploy it?", "form": form}}) + "\n")
"#,
};

/// A task that waits for an answer, and what runs it.
async fn asking(site: &Site) -> anyhow::Result<(TaskId, Den)> {
    let world = &site.world;
    let queue = world.script_queue(ASKS, 1).await?;
    let den = world.den_at_work("node1").await?;
    let id = *world.submit(queue, vec![doc! {}]).await?.first().context("no task")?;
    world.until_status(id, -7).await?;
    Ok((id, den))
}

#[tokio::test]
async fn a_question_is_answered_on_the_page_of_its_task() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let (id, _den) = asking(&site).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.until_text("waits for an answer.").await?;
        page.click("link", "What it asks").await?;
        page.until_text("Deploy it?").await?;
        browser.part("#task-head", "waiting").until_text("waiting for an answer").await?;
        ensure!(browser.violations().await?.is_empty(), "it is accessible");
        let form = browser.part("#answer", "Answer");
        form.choose("go", "true").await?;
        form.fill("comment optional", "looks good").await?;
        form.click("button", "Answer").await?;
        // All of it without loading the page again.
        browser.part("#task-head", "succeeded").until_text("succeeded").await?;
        browser
            .part("#log-stdout", "told")
            .until_text("told {\"comment\": \"looks good\", \"go\": true}")
            .await?;
        browser.part("#task-answer", "Answered").until_text("Answered by the REST API from").await?;
        browser.open(&site.url("/tasks")).await?;
        page.until_no_text("waiting for an answer").await
    })
    .await?;
    ensure!(site.world.status(id).await? == 1);
    site.end().await
}

#[tokio::test]
async fn a_link_shows_the_question_alone_and_takes_one_answer() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let (id, _den) = asking(&site).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.click("button", "Make a link for somebody without a login").await?;
        page.until_text("Whoever has this address can answer").await?;
        let path = browser
            .script("return document.querySelector('main a').getAttribute('href')", serde_json::json!([]))
            .await?;
        let path = path.as_str().context("no link")?.to_owned();
        ensure!(path.starts_with(&format!("/answers/{id}-")), "{path}");
        browser.open(&site.url(&path)).await?;
        page.until_text("Deploy it?").await?;
        ensure!(browser.violations().await?.is_empty(), "it is accessible");
        let scripts = browser.script("return document.scripts.length", serde_json::json!([])).await?;
        ensure!(scripts == 0, "it needs none");
        page.choose("go", "false").await?;
        page.click("button", "Answer").await?;
        page.until_text("Thank you").await
    })
    .await?;
    let task = site.world.until_status(id, 1).await?;
    ensure!(task.get_str("stdout")? == "told {\"go\": false}\n", "{task}");
    site.end().await
}
