//! What a DEN that has nothing to do costs the database.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::counters::audit::Due;
use disbatch_tests::{Script, Server, World, eventually};
use futures::TryStreamExt;
use serde_json::json;

const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\necho done\n" };

/// The operations of DENs on the database since it is profiled, by command and collection.
async fn operations(world: &World) -> anyhow::Result<BTreeMap<String, usize>> {
    let profile = world.database().collection::<Document>("system.profile");
    let entries: Vec<Document> = profile.find(doc! {}).await?.try_collect().await?;
    let mut counts = BTreeMap::new();
    for entry in &entries {
        let command = entry.get_document("command").ok().and_then(|command| command.keys().next());
        let command = command.map_or("?", String::as_str);
        let namespace = entry.get_str("ns").unwrap_or_default();
        let collection = namespace.split_once('.').map_or("", |(_, collection)| collection);
        *counts.entry(format!("{command} {collection}")).or_default() += 1;
    }
    Ok(counts)
}

fn sum(counts: &BTreeMap<String, usize>) -> usize {
    counts.values().sum()
}

/// Lets an idle DEN work for so many heartbeats and returns its operations.
async fn idle_for(world: &World, beats: usize) -> anyhow::Result<BTreeMap<String, usize>> {
    // Folders that runners of other tests leave would have it ask for their tasks.
    std::fs::create_dir(world.path().join("tmp"))?;
    world.configure(json!({ "temp_dir": "tmp" }))?;
    for name in ["Quick", "Missing"] {
        world.queue(name, doc! { "threads": 2 }).await?;
    }
    let queue = world.script_queue(QUICK, 2).await?;
    let _den = world.den_at_work("n1").await?;
    // Work has been done before, and some waits in a queue that nobody serves.
    let tasks = world.submit(queue, vec![doc! {}; 3]).await?;
    for task in tasks {
        world.until_status(task, 1).await?;
    }
    let nodes = world.database().collection::<Document>("nodes");
    eventually("the node to be idle", || async {
        let entry = nodes.find_one(doc! { "node": "n1" }).await?.context("no node")?;
        Ok((entry.get_i64("running").ok() == Some(0)).then_some(()))
    })
    .await?;
    // The first audit of the counters has found out where to count from.
    let store = world.store();
    let audited = || async {
        let due = store.audit_due(Duration::from_secs(300)).await?;
        Ok((due == Due::Nothing).then_some(()))
    };
    eventually("the first audit", audited).await?;
    // The profile of a database holds a megabyte, unless it is there already.
    let large = doc! { "create": "system.profile", "capped": true, "size": 64 << 20 };
    world.database().run_command(large).await?;
    // With a filter, everything that matches is in it.
    world.database().run_command(doc! { "profile": 1, "filter": { "appName": "disbatchd" } }).await?;
    let counts = eventually("so many heartbeats", || async {
        let counts = operations(world).await?;
        Ok((counts.get("findAndModify nodes").copied().unwrap_or(0) >= beats).then_some(counts))
    })
    .await;
    world.database().run_command(doc! { "profile": 0 }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    counts
}

/// With hints there is a heartbeat a second.
#[tokio::test]
async fn an_idle_den_asks_no_more_than_twice_a_second() -> anyhow::Result<()> {
    let world = World::new().await?;
    let counts = idle_for(&world, 20).await?;
    assert!(sum(&counts) <= 20 * 2, "{counts:?}");
    let looks = counts.get("aggregate tasks").copied().unwrap_or(0);
    assert!((5..=14).contains(&looks), "it looks around every two seconds: {counts:?}");
    let streamed = counts.get("getMore $cmd.aggregate").copied().unwrap_or(0);
    assert!(streamed <= 4, "the stream is asked every ten seconds: {counts:?}");
    // The auditor's; the node is told of a change.
    assert!(counts.get("find queues").is_none_or(|finds| *finds <= 1), "{counts:?}");
    world.end().await
}

/// Without them there is a heartbeat every two seconds.
#[tokio::test]
async fn an_idle_den_that_polls_asks_no_more_than_twice_a_second() -> anyhow::Result<()> {
    let world = World::on(Server::Standalone).await?;
    let counts = idle_for(&world, 10).await?;
    assert!(sum(&counts) <= 10 * 2 * 2, "{counts:?}");
    let looks = counts.get("aggregate tasks").copied().unwrap_or(0);
    assert!((10..=24).contains(&looks), "it looks for tasks every second: {counts:?}");
    world.end().await
}

#[tokio::test]
async fn a_new_task_has_no_queue_asked_but_its_own() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(QUICK, 2).await?;
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(world.queue(QUICK.name, doc! { "threads": 2 }).await?);
    }
    let _den = world.den_at_work("n1").await?;
    let run = async |tasks: usize| {
        for _ in 0..tasks {
            let task = world.submit(queue, vec![doc! {}]).await?[0];
            world.until_status(task, 1).await?;
        }
        anyhow::Ok(())
    };
    // When the second is claimed, all queues have been asked once.
    run(2).await?;
    world.database().run_command(doc! { "profile": 2 }).await?;
    run(10).await?;
    world.database().run_command(doc! { "profile": 0 }).await?;
    let profile = world.database().collection::<Document>("system.profile");
    let asked = doc! {
        "command.find": "tasks", "command.filter.status": -2, "command.filter.queue": { "$in": others },
    };
    let asked: Vec<Document> = profile.find(asked).await?.try_collect().await?;
    assert!(asked.is_empty(), "{} times, as {:?}", asked.len(), asked.first());
    world.end().await
}
