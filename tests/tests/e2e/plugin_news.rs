//! What nodes have of plugins, and why not, is known without a restart of anything.

use std::fs;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_tests::{Dci, Script, World, eventually};
use reqwest::Method;
use serde_json::{Value, json};

const NEW: Script<'_> = Script { name: "New", text: "#!/bin/sh\necho hello\n" };

/// A world with a DEN and a DCI, and a queue whose plugin never comes, so that the DEN looks each second.
async fn served() -> anyhow::Result<(World, disbatch_tests::Den, Dci)> {
    let world = World::new().await?;
    world.queue("Never", doc! { "threads": 1 }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let den = world.den_at_work("n1").await?;
    Ok((world, den, dci))
}

async fn explained(dci: &Dci, task: &str) -> anyhow::Result<String> {
    Ok(dci.get(&format!("/tasks/{task}/explain")).await?.to_string())
}

#[tokio::test]
async fn a_plugin_that_a_node_has_is_known_at_once_and_an_unknown_one_gets_a_hint() -> anyhow::Result<()> {
    let (world, den, dci) = served().await?;
    let new = json!({ "name": "greetings", "plugin": "New" });
    let (status, told) = dci.post("/queues", &new).await?;
    ensure!(status == 400 && told["error"] == "Unknown plugin" && told["plugin"] == "New", "{told}");
    let known = told["known"].as_array().context("no hint")?;
    ensure!(known.contains(&json!("Disbatch::Plugin::Demo")) && !known.contains(&json!("New")), "{told}");
    NEW.install(&world.plugins())?;
    let lists = async || -> anyhow::Result<bool> {
        Ok(dci.get("/plugins").await?.as_array().context("no list")?.contains(&json!("New")))
    };
    eventually("the new plugin", || async { Ok(lists().await?.then_some(())) }).await?;
    let (status, told) = dci.post("/queues", &new).await?;
    ensure!(status == 200, "{told}");
    // What no living node has any more is not for new queues.
    fs::remove_dir_all(world.plugins().join("New"))?;
    eventually("the plugin is gone", || async { Ok((!lists().await?).then_some(())) }).await?;
    // A list in the configuration of the DCI is all that there is.
    NEW.install(&world.plugins())?;
    eventually("the plugin again", || async { Ok(lists().await?.then_some(())) }).await?;
    drop(dci);
    world.configure(json!({ "plugins": ["Disbatch::Plugin::Demo"] }))?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    ensure!(dci.get("/plugins").await? == json!(["Disbatch::Plugin::Demo"]));
    let (status, told) = dci.post("/queues", &json!({ "name": "other", "plugin": "New" })).await?;
    ensure!(
        status == 400 && told["hint"].as_str().is_some_and(|hint| hint.contains("nodes have it")),
        "{told}"
    );
    drop(den);
    world.end().await
}

#[tokio::test]
async fn a_manifest_that_breaks_is_named_wherever_one_looks() -> anyhow::Result<()> {
    let (world, den, dci) = served().await?;
    NEW.install(&world.plugins())?;
    let path = world.plugins().join("New/plugin.json");
    fs::write(&path, "{ # what nodes read is relaxed\n\"name\": \"New\", \"command\": [\"./run\",], }")?;
    let queue = world.queue("New", doc! { "threads": 1 }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    fs::write(&path, "{ \"name\": \"New\", \"command\": [\"./run\" }")?;
    let problems = async || -> anyhow::Result<Vec<Value>> {
        let node = dci.get("/nodes/n1?.details=1").await?;
        Ok(node["plugin_problems"].as_array().cloned().unwrap_or_default())
    };
    let found = eventually("the reason", || async { Ok(problems().await?.first().cloned()) }).await?;
    let why = found["why"].as_str().context("no reason")?;
    let file = path.display().to_string();
    ensure!(
        found["plugin"] == "New" && why.starts_with(&format!("{file}: command: expected `,` or `]`")),
        "{found}"
    );
    let task = world.submit(queue, vec![doc! {}]).await?[0].to_string();
    let told = explained(&dci, &task).await?;
    ensure!(told.contains("cannot run the plugin New") && told.contains(&file), "{told}");
    let page =
        dci.request(Method::GET, "/nodes/n1").header("accept", "text/html").send().await?.text().await?;
    ensure!(page.contains("Plugins that it cannot run") && page.contains(&file), "{page}");
    let log = den.log()?;
    ensure!(
        log.contains(&format!("plugin manifest {file}: command: expected")) && !log.contains("?:"),
        "{log}"
    );
    NEW.install(&world.plugins())?;
    eventually("no problem", || async { Ok(problems().await?.is_empty().then_some(())) }).await?;
    world.until_status(task.parse()?, 1).await?;
    world.end().await
}

#[tokio::test]
async fn that_no_node_has_an_engine_is_said() -> anyhow::Result<()> {
    let (world, _den, dci) = served().await?;
    let csv = json!({ "documents": [{ "_id": "Csv", "worker": { "image": "registry.example/csv" } }] });
    let told = dci.posted("/workers/import", &csv).await?;
    let warning = told["warnings"][0].as_str().context(told.to_string())?;
    ensure!(warning.starts_with("Csv: no node") && warning.contains("the engine kubernetes"), "{told}");
    let queue = world.queue("Csv", doc! { "threads": 1 }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0].to_string();
    eventually("the reason", || async {
        let told = explained(&dci, &task).await?;
        Ok(told.contains("cannot run the plugin Csv: the engine kubernetes is not").then_some(()))
    })
    .await?;
    world.end().await
}
