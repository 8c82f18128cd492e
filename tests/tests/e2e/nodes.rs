//! Nodes: which queues they run, what is told of them, and what becomes of those that are gone.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::{Labels, NodeName, QueueId};
use disbatch_core::node::{Addresses, Beat, Stats};
use disbatch_core::plugin::{Engine, Report};
use disbatch_core::slots::Holder;
use disbatch_tests::{Dci, Script, World, always, eventually};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};

const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\n" };

async fn dci(world: &World) -> anyhow::Result<Dci> {
    Dci::start(&world.config(), &world.path().join("dci.log")).await
}

async fn status_of(dci: &Dci, method: Method, path: &str) -> anyhow::Result<u16> {
    Ok(dci.request(method, path).send().await?.status().as_u16())
}

#[tokio::test]
async fn a_queue_is_run_by_the_nodes_that_it_names_or_that_have_its_labels() -> anyhow::Result<()> {
    let world = World::new().await?;
    QUICK.install(&world.plugins())?;
    world.configure(json!({ "labels": { "gpu": "yes", "zone": "a" } }))?;
    let _labelled = world.den_at_work("n1").await?;
    world.configure(json!({ "labels": { "gpu": "no" }, "addresses": ["10.0.0.5", "203.0.113.9"] }))?;
    let _other = world.den_at_work("n2").await?;
    let dci = dci(&world).await?;
    for (nodes, only) in [
        (json!({ "labels.gpu": "yes", "labels.zone": "a" }), "n1"),
        (json!({ "names": "n2, n3" }), "n2"),
        (json!({ "names": ["n2"], "labels": { "gpu": "no" } }), "n2"),
    ] {
        // A DEN that has not heard of the change yet knows a queue without threads.
        let queue = world.queue(QUICK.name, doc! { "threads": 0 }).await?;
        world.submit(queue, vec![doc! {}; 20]).await?;
        dci.posted(&format!("/queues/{queue}"), &json!({ "nodes": nodes, "threads": 10 })).await?;
        let tasks = world.until_all_ended(queue).await?;
        let ran: HashSet<&str> = tasks.iter().filter_map(|task| task.get_str("node").ok()).collect();
        assert_eq!(ran, HashSet::from([only]), "{nodes}");
    }
    let queue = world.queue(QUICK.name, doc! { "threads": 0 }).await?;
    let path = format!("/queues/{queue}");
    dci.posted(&path, &json!({ "nodes": { "labels": { "gpu": "perhaps" } }, "threads": 10 })).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let explained = dci.get(&format!("/tasks/{task}/explain")).await?;
    let summary = explained["summary"].as_str().context("no summary")?;
    assert_eq!(
        summary,
        "No node can claim it. 2 nodes (n1, n2): the queue is for other nodes (labels gpu=perhaps)."
    );
    always("nobody claims it", Duration::from_secs(3), || async { Ok(world.status(task).await? == -2) })
        .await?;
    let (refused, error) = dci.post(&path, &json!({ "nodes": { "name": "n1" } })).await?;
    assert_eq!(refused, 400, "{error}");
    dci.posted(&path, &json!({ "nodes": null })).await?;
    world.until_status(task, 1).await?;
    let n2 = dci.get("/nodes/n2?.details=1").await?;
    assert_eq!(n2["addresses"], json!({ "private": ["10.0.0.5"], "public": ["203.0.113.9"] }));
    assert_eq!((&n2["labels"], &n2["state"]), (&json!({ "gpu": "no" }), &json!("alive")));
    world.end().await
}

/// Tells all that a DEN can tell of itself.
fn talkative() -> Beat {
    let names = || vec!["A".to_owned()];
    Beat {
        instance: "i".to_owned(),
        lease: Duration::from_secs(30),
        draining: false,
        running: 1,
        plugins: names(),
        versions: names(),
        workers: names(),
        shadows: names(),
        problems: vec![Report { why: "w".to_owned(), plugin: None }],
        engines: vec![Engine::Exec],
        serves: doc! { "active": [] },
        fires_no_schedules: true,
        wants: vec![QueueId(ObjectId::new())],
        labels: Labels([("gpu".to_owned(), "yes".to_owned())].into()),
        addresses: Addresses::sorted(["10.0.0.5"]),
        rival: Some("j".to_owned()),
        aside: 1,
        stats: Stats { load: Some(0.5), cpus: Some(1), memory: Some(1), memory_available: Some(1) },
        holder: Some(Holder::drawn()),
    }
}

#[tokio::test]
async fn what_a_den_says_of_itself_is_shown_as_a_detail() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = dci(&world).await?;
    world.store().heartbeat(&NodeName::new("n1"), &talkative()).await?;
    dci.posted("/nodes/n1", &json!({ "maxthreads": 5, "draining": true, "interrupt": true })).await?;
    let node = dci.get("/nodes/n1").await?;
    let shown: Vec<&str> = node.as_object().context("no node")?.keys().map(String::as_str).collect();
    assert_eq!(shown, ["_id", "id", "maxthreads", "node", "timestamp"]);
    assert_eq!(dci.get("/nodes").await?, json!([node]));
    let details = dci.get("/nodes/n1?.details=1").await?;
    ensure!(details["holders"].is_object() && details["schedules"] == json!(false), "{details}");
    world.end().await
}

#[tokio::test]
async fn a_node_that_is_gone_runs_what_it_really_runs_and_can_be_removed() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 1 }))?;
    let dci = dci(&world).await?;
    let den = world.den_at_work("n1").await?;
    assert_eq!(status_of(&dci, Method::DELETE, "/nodes/n1").await?, 409, "it is alive");
    assert_eq!(status_of(&dci, Method::DELETE, "/nodes/n7").await?, 404);
    den.end_with(Signal::SIGKILL).await?;
    let nodes = world.database().collection::<Document>("nodes");
    // As if it had been killed at work.
    nodes.update_one(doc! { "node": "n1" }, doc! { "$set": { "running": 20 } }).await?;
    let queue = world.script_queue(QUICK, 0).await?;
    world.claimed(queue, doc! {}, "n1").await?;
    let gone = eventually("its lease to be over", || async {
        let node = dci.get("/nodes/n1?.details=1").await?;
        Ok((node["state"] == "dead").then_some(node))
    })
    .await?;
    assert_eq!(gone["running"], 1, "and not 20");
    let page =
        dci.request(Method::GET, "/nodes/n1").header("accept", "text/html").send().await?.text().await?;
    ensure!(page.contains("Remove this node"), "{page}");
    assert_eq!(status_of(&dci, Method::DELETE, "/nodes/n1").await?, 200);
    assert_eq!(dci.get("/nodes").await?, json!([]));
    let entries = world.database().collection::<Document>("audit");
    let entry = entries.find_one(doc! { "what": "node delete" }).await?.context("no entry")?;
    ensure!(entry.to_string().contains("n1"), "{entry}");
    let _den = world.den_at_work("n1").await?;
    world.end().await
}

#[tokio::test]
async fn a_node_that_is_drained_runs_also_what_an_earlier_den_has_started() -> anyhow::Result<()> {
    let world = World::new().await?;
    let go = world.path().join("go");
    let text = format!("#!/bin/sh\nuntil [ -e {} ]; do sleep 0.05; done\n", go.display());
    let queue = world.script_queue(Script { name: "Waits", text: &text }, 1).await?;
    let dci = dci(&world).await?;
    let den = world.den_at_work("n1").await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 0).await?;
    den.end_with(Signal::SIGTERM).await?;
    dci.posted("/nodes/n1", &json!({ "draining": true })).await?;
    let _successor = world.den("n1")?;
    let node = eventually("the heartbeat of its successor", || async {
        let node = dci.get("/nodes/n1?.details=1").await?;
        Ok((node["state"] == "draining").then_some(node))
    })
    .await?;
    assert_eq!(node["running"], 1, "{node}");
    std::fs::write(&go, "")?;
    world.until_status(task, 1).await?;
    assert_eq!(dci.get("/nodes/n1?.details=1").await?["running"], 0);
    world.end().await
}

#[tokio::test]
async fn two_dens_with_one_name_are_told_apart() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = dci(&world).await?;
    let first = world.den_at_work("n1").await?;
    let second = world.den("n1")?;
    let node: Value = eventually("the warning", || async {
        let node = dci.get("/nodes/n1?.details=1").await?;
        Ok(node["rival"].is_string().then_some(node))
    })
    .await?;
    assert_ne!(node["rival"], node["instance"], "{node}");
    eventually("both to warn", || async {
        // They write to the same file.
        let log = std::fs::read_to_string(world.path().join("n1.log"))?;
        Ok((log.matches("another DEN uses the name of this node").count() == 2).then_some(()))
    })
    .await?;
    let page =
        dci.request(Method::GET, "/nodes/n1").header("accept", "text/html").send().await?.text().await?;
    ensure!(page.contains("Two DENs use the name n1"), "{page}");
    second.end_with(Signal::SIGTERM).await?;
    eventually("the warning to go", || async {
        Ok(dci.get("/nodes/n1?.details=1").await?["rival"].is_null().then_some(()))
    })
    .await?;
    drop(first);
    world.end().await
}

#[tokio::test]
async fn one_den_runs_the_command_for_a_dead_node_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (record, hook) = (world.path().join("deaths"), world.path().join("hook"));
    let text = format!(
        "#!/bin/sh\necho \"$1 $DISBATCH_NODE $DISBATCH_ADDRESSES $DISBATCH_INSTANCE\" >> {}\nexit 3\n",
        record.display()
    );
    std::fs::write(&hook, text)?;
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let keys = json!({ "lease": 2, "addresses": ["10.0.0.5"], "on_dead_node": [hook, "died"] });
    world.configure(keys)?;
    let _others = (world.den_at_work("n1").await?, world.den_at_work("n2").await?);
    let dies = world.den_at_work("n3").await?;
    let nodes = world.database().collection::<Document>("nodes");
    let before = nodes.find_one(doc! { "node": "n3" }).await?.context("no node")?;
    dies.end_with(Signal::SIGKILL).await?;
    let noted = eventually("the outcome", || async {
        let node = nodes.find_one(doc! { "node": "n3", "hook.outcome": { "$exists": true } }).await?;
        Ok(node)
    })
    .await?;
    let hook = noted.get_document("hook")?;
    assert_eq!(hook.get_str("outcome")?, "exit status: 3");
    ensure!(["n1", "n2"].contains(&hook.get_str("by")?), "{hook}");
    let line = format!("died n3 10.0.0.5 {}\n", before.get_str("instance")?);
    always("it is run once", Duration::from_secs(6), || async {
        Ok(std::fs::read_to_string(&record)? == line)
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn a_drain_waits_only_for_what_can_end() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = dci(&world).await?;
    let stopped = world.queue(QUICK.name, doc! {}).await?;
    let paused = world.queue(QUICK.name, doc! { "threads": 1, "paused": true }).await?;
    for queue in [stopped, paused] {
        world.submit(queue, vec![doc! {}; 2]).await?;
    }
    let of_one = json!({ "scope": "queue", "value": paused.to_string(), "action": "reject" });
    let rule = dci.posted("/admission", &of_one).await?;
    assert_eq!((&rule["waiting"], &rule["stopped"], &rule["left"]), (&json!(2), &json!(2), &json!([])));
    let idle = "nothing runs, 2 in queues that start nothing, and safe to upgrade in a few seconds";
    assert_eq!(rule["text"], idle);

    let queue = world.queue("Nobodys", doc! { "threads": 1, "name": "mail" }).await?;
    let waits = world.submit(queue, vec![doc! {}]).await?[0];
    let runs = world.claimed(queue, doc! {}, "n1").await?;
    let rule = dci.posted("/admission", &json!({ "scope": "all", "action": "reject" })).await?;
    assert_eq!((&rule["waiting"], &rule["stopped"], &rule["running"]), (&json!(5), &json!(4), &json!(1)));
    let left = json!([
        { "task": runs.to_string(), "queue": "mail", "status": -1, "node": "n1" },
        { "task": waits.to_string(), "queue": "mail", "status": -2, "node": null },
    ]);
    assert_eq!(rule["left"], left, "{rule}");
    world.end().await
}

#[tokio::test]
async fn a_drain_names_tasks_that_nobody_ends() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = dci(&world).await?;
    let queue = world.script_queue(QUICK, 1).await?;
    let task = world.claimed(queue, doc! {}, "lost").await?;
    let rule = dci.posted("/admission", &json!({ "scope": "all", "action": "reject" })).await?;
    assert_eq!(rule["stranded"], json!([{ "task": task.to_string(), "node": "lost" }]), "{rule}");
    let text = rule["text"].as_str().context("no text")?;
    assert_eq!(text, format!("0 wait, 1 run; on nodes that are not alive: {task} on lost"));
    let nodes = world.database().collection::<Document>("nodes");
    nodes.insert_one(doc! { "node": "lost", "timestamp": world.store().now() }).await?;
    let rules = dci.get("/admission").await?;
    assert_eq!(rules["rules"][0]["text"], "0 wait, 1 run", "one of Perl's that is alive");
    world.end().await
}
