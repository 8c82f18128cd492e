//! Versions of plugins: which of them runs the tasks of a queue, on which nodes, and what is told of that.

mod canary;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::model::QueueId;
use disbatch_tests::{Dci, Script, World, always, eventually};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};

/// Says its version.
pub const SAYS: &str = "#!/bin/sh\necho VERSION\n";

/// The same as a warm plugin, with its process.
pub const WARM: &str = r#"#!/usr/bin/env python3
import json, os, sys
control = int(os.environ["DISBATCH_CONTROL_FD"])
for line in sys.stdin:
    message = json.loads(line)
    print("VERSION", flush=True)
    print(os.getpid(), file=sys.stderr, flush=True)
    os.write(control, json.dumps({"done": {"id": message["env"]["DISBATCH_TASK_ID"], "exit": 0}}).encode() + b"\n")
"#;

/// Installs a version of the plugin `Mail`, in whose program `VERSION` stands for it.
pub fn install(plugins: &Path, version: &str, (text, more): (&str, Value)) -> anyhow::Result<()> {
    let text = text.replace("VERSION", version);
    let mut manifest = json!({ "name": "Mail", "version": version, "command": ["./run"] });
    if let (Value::Object(manifest), Value::Object(more)) = (&mut manifest, more) {
        manifest.extend(more);
    }
    Script { name: &format!("mail-{version}"), text: &text }.install_as(plugins, &manifest)
}

pub async fn dci(world: &World) -> anyhow::Result<Dci> {
    Dci::start(&world.config(), &world.path().join("dci.log")).await
}

/// What tasks that are submitted now say, each with the version that it remembers.
async fn said(world: &World, queue: QueueId, tasks: usize) -> anyhow::Result<BTreeSet<(String, String)>> {
    let ids: BTreeSet<_> =
        world.submit(queue, vec![doc! {}; tasks]).await?.into_iter().map(|id| id.to_string()).collect();
    let ended = world.until_all_ended(queue).await?;
    let new =
        ended.iter().filter(|task| task.get_object_id("_id").is_ok_and(|id| ids.contains(&id.to_hex())));
    let text = |task: &Document, field| task.get_str(field).unwrap_or("none").trim().to_owned();
    Ok(new.map(|task| (text(task, "stdout"), text(task, "plugin_version"))).collect())
}

fn only(said: &str, remembered: &str) -> BTreeSet<(String, String)> {
    BTreeSet::from([(said.to_owned(), remembered.to_owned())])
}

/// Pins a version, and waits until the one node goes by that: it hears of changes a moment later.
async fn pin(world: &World, dci: &Dci, queue: QueueId, version: Value) -> anyhow::Result<()> {
    dci.posted(&format!("/queues/{queue}"), &json!({ "version": version })).await?;
    let remembered = version.as_str().unwrap_or("none");
    eventually("the node to hear of it", || async {
        Ok(said(world, queue, 1).await?.iter().all(|(_, of_task)| of_task == remembered).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_queue_is_run_by_the_version_that_it_pins() -> anyhow::Result<()> {
    let world = World::new().await?;
    for version in ["1.0", "1.10"] {
        install(&world.plugins(), version, (SAYS, json!({})))?;
    }
    let queue = world.queue("Mail", doc! { "threads": 4 }).await?;
    let _den = world.den_at_work("n1").await?;
    let dci = dci(&world).await?;
    assert_eq!(said(&world, queue, 5).await?, only("1.0", "none"), "the first that was found");
    pin(&world, &dci, queue, json!("1.10")).await?;
    assert_eq!(said(&world, queue, 30).await?, only("1.10", "1.10"));
    let task = world.tasks_of(queue).await?.last().context("no task")?.get_object_id("_id")?;
    dci.posted(&format!("/tasks/{task}/retry"), &json!({})).await?;
    eventually("it to run again", || async {
        Ok((dci.get(&format!("/tasks/{task}/attempts")).await?[0]["plugin_version"] == "1.10").then_some(()))
    })
    .await?;
    world.until_all_ended(queue).await?;
    let detailed = dci.get(&format!("/tasks/{task}?.details=1")).await?;
    assert_eq!(detailed["plugin_version"], "1.10", "{detailed}");
    assert!(dci.get(&format!("/tasks/{task}")).await?.get("plugin_version").is_none(), "it is a detail");
    pin(&world, &dci, queue, json!(null)).await?;
    assert_eq!(said(&world, queue, 30).await?, only("1.0", "none"), "rolled back");
    dci.posted(&format!("/tasks/{task}/retry"), &json!({})).await?;
    world.until_all_ended(queue).await?;
    let again = world.tasks().find_one(doc! { "_id": task }).await?.context("no task")?;
    assert_eq!((again.get_str("stdout")?, again.get("plugin_version")), ("1.0\n", None));
    let (refused, error) = dci.post(&format!("/queues/{queue}"), &json!({ "version": "1 2" })).await?;
    assert!(refused == 400 && error.to_string().contains("letters, digits"), "{error}");
    let (refused, error) = dci.post(&format!("/queues/{queue}"), &json!({ "version": 1.10 })).await?;
    assert!(refused == 400 && error.to_string().contains("must be text"), "{error}");
    let plugins = dci.get("/plugins?.details=1").await?;
    let mail = plugins.as_array().and_then(|all| all.iter().find(|plugin| plugin["name"] == "Mail"));
    assert_eq!(mail, Some(&json!({ "name": "Mail", "versions": ["1.0", "1.10"] })));
    let names = dci.get("/plugins").await?;
    assert!(names.as_array().is_some_and(|names| names.contains(&json!("Mail"))), "{names}");
    world.end().await
}

/// Two nodes, of which `n2` has version 1 alone.
async fn unlike_nodes(world: &World) -> anyhow::Result<(disbatch_tests::Den, disbatch_tests::Den)> {
    let old = world.path().join("old");
    for version in ["1", "2"] {
        install(&world.plugins(), version, (SAYS, json!({})))?;
    }
    install(&old, "1", (SAYS, json!({})))?;
    let first = world.den_at_work("n1").await?;
    let mut config: Value = serde_json::from_slice(&std::fs::read(world.config())?)?;
    config["plugin_dirs"] = json!(["old"]);
    let own = world.path().join("n2.json");
    std::fs::write(&own, config.to_string())?;
    let second = world.den_at_work_with(&own, "n2").await?;
    Ok((first, second))
}

#[tokio::test]
async fn a_node_without_the_version_claims_nothing_of_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (first, _second) = unlike_nodes(&world).await?;
    let queue = world.queue("Mail", doc! { "name": "mail", "threads": 4, "version": "2" }).await?;
    let dci = dci(&world).await?;
    assert_eq!(said(&world, queue, 60).await?, only("2", "2"));
    assert_eq!(world.count(queue, doc! { "node": "n1" }).await?, 60);
    first.end_with(Signal::SIGTERM).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    always("nobody claims it", Duration::from_secs(3), || async { Ok(world.status(task).await? == -2) })
        .await?;
    let why = dci.get(&format!("/tasks/{task}/explain")).await?.to_string();
    assert!(why.contains("n2 cannot claim it: it does not have version 2 of the plugin Mail."), "{why}");
    let (_, findings) = super::doctor::doctor(&dci).await?;
    let findings = json!(findings).to_string();
    assert!(findings.contains("no node has version 2 of its plugin Mail"), "{findings}");
    let page = async |path: String| {
        let request = dci.request(Method::GET, &path).header("accept", "text/html");
        Ok::<_, anyhow::Error>(request.send().await?.text().await?)
    };
    let of_queue = page(format!("/queues/{queue}")).await?;
    assert!(of_queue.contains("it does not have version 2 of the plugin Mail"), "{of_queue}");
    assert!(of_queue.contains("no node has it") && of_queue.contains("Run all with 1"), "{of_queue}");
    dci.posted(&format!("/queues/{queue}"), &json!({ "version": "1" })).await?;
    let ran = world.until_status(task, 1).await?;
    assert_eq!((ran.get_str("stdout")?, ran.get_str("node")?), ("1\n", "n2"));
    let of_task = page(format!("/tasks/{task}")).await?;
    assert!(of_task.contains("<dt>Plugin version</dt><dd>1</dd>"), "{of_task}");
    world.end().await
}

#[tokio::test]
async fn what_nobody_can_read_is_run_by_nobody() -> anyhow::Result<()> {
    let world = World::new().await?;
    install(&world.plugins(), "1", (SAYS, json!({})))?;
    let queue = world.queue("Mail", doc! { "threads": 4, "version": 1 }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let den = world.den_at_work("n1").await?;
    always("nobody claims it", Duration::from_secs(3), || async { Ok(world.status(task).await? == -2) })
        .await?;
    assert!(den.log()?.contains("'1' is no version of a plugin"), "{}", den.log()?);
    world.update_queue(queue, doc! { "version": "1" }).await?;
    let ran = world.until_status(task, 1).await?;
    assert_eq!(ran.get_str("plugin_version")?, "1");
    world.end().await
}

#[tokio::test]
async fn a_warm_process_is_of_one_version() -> anyhow::Result<()> {
    let world = World::new().await?;
    for version in ["1", "2"] {
        install(&world.plugins(), version, (WARM, json!({ "warm": true })))?;
    }
    let queue = world.queue("Mail", doc! { "threads": 2 }).await?;
    let _den = world.den_at_work("n1").await?;
    let dci = dci(&world).await?;
    for (pinned, expected) in
        [(json!(null), only("1", "none")), (json!("2"), only("2", "2")), (json!("1"), only("1", "1"))]
    {
        pin(&world, &dci, queue, pinned).await?;
        assert_eq!(said(&world, queue, 40).await?, expected);
    }
    let processes: BTreeSet<String> = world
        .tasks_of(queue)
        .await?
        .iter()
        .filter_map(|task| task.get_str("stderr").ok().map(str::to_owned))
        .collect();
    assert!(processes.len() < 30, "they are kept: {processes:?}");
    world.end().await
}
