//! Tasks from the form that is made from the description of a plugin's parameters.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::visit;
use disbatch_tests::{Script, eventually};
use serde_json::json;

use crate::site::{Site, was_refused};

/// Greets, and stays until a file is there or it is told to end.
const GREETER: Script<'_> = Script {
    name: "Greeter",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
print("hello", params["whom"], params.get("times", 1), flush=True)
while not os.path.exists(params["until"]):
    time.sleep(0.02)
"#,
};

async fn site_with_greeter() -> anyhow::Result<Site> {
    let manifest = json!({
        "name": GREETER.name,
        "command": ["./run"],
        "params": {
            "type": "object",
            "required": ["whom", "until"],
            "properties": {
                "whom": { "type": "string", "minLength": 2, "description": "who is greeted" },
                "until": { "type": "string", "description": "the file that ends it" },
                "times": { "type": "integer", "minimum": 1, "maximum": 9 },
            },
        },
    });
    let site = Site::with(|world| GREETER.install_as(&world.plugins(), &manifest)).await?;
    site.world.queue(GREETER.name, doc! { "name": "greetings", "threads": 1 }).await?;
    Ok(site)
}

#[tokio::test]
async fn a_form_submits_a_task_which_is_seen_to_run_and_to_end() -> anyhow::Result<()> {
    let site = site_with_greeter().await?;
    let world = &site.world;
    let _den = world.den_at_work("node1").await?;
    let until = world.path().join("until");
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        let page = browser.page();
        page.click("link", "greetings").await?;
        page.click("link", "New tasks").await?;
        let form = browser.part("#params-form", "whom");
        form.fill("until", &until.display().to_string()).await?;
        form.fill("times optional", "3").await?;
        // What is wrong is told at once; here it is the browser that knows.
        form.fill("whom", "x").await?;
        form.click("button", "Submit the task").await?;
        browser
            .until(
                "a field that is refused",
                "return document.querySelector('#params-form :invalid')?.name === '/whom'",
            )
            .await?;
        form.fill("whom", "Ada").await?;
        browser.script("globalThis.stillTheSame = true", json!([])).await?;
        form.click("button", "Submit the task").await?;
        page.until_text("Submitted: ").await?;
        browser.part("#queue-statuses", "running").until_text("running\n1").await?;
        std::fs::write(&until, "")?;
        browser.part("#queue-statuses", "succeeded").until_text("succeeded\n1").await?;
        assert_eq!(browser.script("return globalThis.stillTheSame", json!([])).await?, true);
        // And it got what was in the form, as what it is.
        let link = "return document.querySelector('#submitted a').click() ?? true";
        browser.script(link, json!([])).await?;
        browser.part("#log-stdout", "hello Ada 3").until_text("hello Ada 3").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_form_makes_an_array_without_the_parameter_that_each_element_has() -> anyhow::Result<()> {
    let site = site_with_greeter().await?;
    let world = &site.world;
    let queues = world.database().collection::<bson::Document>("queues");
    queues.update_one(doc! {}, doc! { "$set": { "threads": 0 } }).await?;
    visit(async |browser| {
        browser.open(&site.url("/queues/greetings?tab=new")).await?;
        let page = browser.page();
        let form = browser.part("#params-form", "whom");
        form.fill("until", "/nowhere").await?;
        form.click("DisclosureTriangle", "Options").await?;
        form.fill("Array", "[\"Ada\", \"Grace\"]").await?;
        // It is wanted of each, as long as it is not what each has of its own.
        form.click("button", "Submit the task").await?;
        let wanted = "return document.querySelector('#params-form :invalid')?.name === '/whom'";
        browser.until("a field that is wanted", wanted).await?;
        form.fill("Parameter of elements", "whom").await?;
        let gives_way = "return document.querySelector('[name=\"/whom\"]').disabled";
        browser.until("a field that gives way", gives_way).await?;
        form.click("button", "Submit the task").await?;
        page.until_text("Submitted: array ").await?;
        let of_ada = doc! { "params.until": "/nowhere", "params.whom": "Ada" };
        eventually("its first element", async || Ok(world.tasks().find_one(of_ada.clone()).await?)).await?;
        let link = "return document.querySelector('#submitted a').click() ?? true";
        browser.script(link, json!([])).await?;
        page.until_text("0 of 2 have ended").await?;
        page.until_text("Grace").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_running_task_is_cancelled() -> anyhow::Result<()> {
    let site = site_with_greeter().await?;
    let world = &site.world;
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        let queue = world.database().collection::<bson::Document>("queues").find_one(doc! {}).await?;
        let queue = queue.and_then(|queue| queue.get_object_id("_id").ok()).expect("it has been made");
        browser.open(&site.url(&format!("/queues/{queue}?tab=new"))).await?;
        let page = browser.page();
        // More than one, as text.
        page.click("tab", "JSON").await?;
        let never = world.path().join("never").display().to_string();
        let tasks = json!([{ "whom": "Ada", "until": never }, { "whom": "Grace", "until": never }]);
        let form = browser.part("#by-json", "Parameters as JSON");
        form.fill("Parameters as JSON", "[{\"whom\":").await?;
        form.click("button", "Submit").await?;
        form.until_text("line 1 column 9").await?;
        was_refused(browser).await?;
        form.fill("Parameters as JSON", &tasks.to_string()).await?;
        form.click("button", "Submit").await?;
        browser.part("#queue-statuses", "running\n1").until_text("queued\n1").await?;
        page.click("link", "running 1").await?;
        let row = browser.part("tbody tr", "running");
        row.until_text("running").await?;
        browser.script("document.querySelector('tbody tr th a').click()", json!([])).await?;
        browser.part("#log-stdout", "hello").until_text("hello").await?;
        page.click("link", "Cancel").await?;
        let dialog = browser.part("dialog[open]", "Cancel this task?");
        dialog.fill("Reason", "nobody is greeted today").await?;
        dialog.click("button", "Yes, cancel it").await?;
        let head = browser.part("#task-head", "cancelled");
        head.until_text("cancelled").await?;
        // What may be done now is not what might be done before.
        head.until_there("link", "Retry").await?;
        ensure!(!head.names("link").await?.contains(&"Cancel".to_owned()), "it has ended");
        page.until_text("nobody is greeted today").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_task_that_is_run_again_keeps_numbers_as_they_are() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "demo", "threads": 0 }).await?;
    // No browser's number can be so large.
    let id = world.submit(queue, vec![doc! { "n": 12_345_678_901_234_567_i64 }]).await?[0];
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.click("link", "Run again with changes").await?;
        let dialog = browser.part("dialog[open]", "Run again with changes");
        dialog.click("button", "Submit task").await?;
        page.until_text("This is the new task.").await?;
        let same = doc! { "params.n": 12_345_678_901_234_567_i64, "_id": { "$ne": id } };
        eventually("the new task", async || Ok(world.tasks().find_one(same.clone()).await?)).await.map(drop)
    })
    .await?;
    site.end().await
}
