//! What tasks are called, wherever they are shown.

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_tests::Script;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

/// Runs until it is ended.
const GREETER: Script<'_> = Script { name: "Greeter", text: "#!/bin/sh\nwhile :; do sleep 0.1; done\n" };

#[tokio::test]
async fn tasks_are_called_as_their_queue_or_its_plugin_has_it() -> anyhow::Result<()> {
    let manifest = json!({ "name": GREETER.name, "command": ["./run"], "title": "greet {whom}" });
    let site = Site::with(|world| GREETER.install_as(&world.plugins(), &manifest)).await?;
    let world = &site.world;
    let queue = world.queue(GREETER.name, doc! { "name": "greetings", "threads": 1 }).await?;
    let task = json!({ "queue": "greetings", "params": { "whom": "Ada" }, ".locks": "door" });
    site.post("/tasks", &task).await?;
    let first = world.tasks().find_one(doc! { "queue": queue }).await?.context("no task")?;
    let first = first.get_object_id("_id")?.to_hex();
    let _den = world.den_at_work("node1").await?;
    world.until_status(first.parse()?, 0).await?;
    let next = json!({
        "queue": "greetings", "params": { "whom": "Grace" }, ".locks": "door", ".after": [first],
    });
    site.post("/tasks", &next).await?;
    let array = json!({ "queue": "greetings", "params": { "whom": "Edsger" }, ".array": "0-1" });
    site.post("/tasks", &array).await?;
    let array = world.database().collection::<bson::Document>("arrays").find_one(doc! {}).await?;
    let array = array.context("no array")?.get_object_id("_id")?.to_hex();
    visit(async |browser| {
        let page = browser.page();
        for (path, names) in [
            ("/tasks", ["greet Ada", "greet Grace"]),
            ("/queues/greetings", ["greet Ada", "greet Edsger · 0"]),
            ("/nodes/node1", ["greet Ada", "greet Ada"]),
            ("/locks", ["greet Ada", "greet Ada"]),
            ("/locks/door", ["greet Ada", "greet Ada"]),
            (&format!("/arrays/{array}"), ["greet Edsger · 0", "greet Edsger · 1"]),
        ] {
            browser.open(&site.url(path)).await?;
            for name in names {
                page.until_there("link", name).await?;
            }
        }
        browser.open(&site.url(&format!("/tasks/{first}"))).await?;
        let graph = "return document.querySelector('#task-graph').textContent.includes('greet Grace')";
        browser.until("the name of the task that comes after it", graph).await?;
        browser.until("a tab", "return document.title.startsWith('▶ greetings: greet Ada')").await?;
        // What the queue says comes first, and is known at once.
        site.post("/queues/greetings", &json!({ "title": "hello {whom}" })).await?;
        browser.open(&site.url("/tasks")).await?;
        page.until_there("link", "hello Grace").await?;
        let end = format!("…{}", &first[18..]);
        browser.part("#rows tr", "hello Ada").until_text(&end).await?;
        // Which attempt there is, is known.
        browser.open(&site.url(&format!("/tasks/{first}?.attempt=7"))).await?;
        page.until_text(&format!("task {first} has no attempt 7")).await?;
        ensure!(browser.complaints().await?.iter().all(|text| text.contains("404")));
        Ok(())
    })
    .await?;
    site.end().await
}
