//! A backlog is spread over the nodes that could run it, and nothing is left to those that do not.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::{NodeName, QueueId};
use disbatch_core::node::Beat;
use disbatch_tests::{Den, Script, World, eventually};
use tokio::time::{Instant, interval};

/// How long it is watched who runs what, from the first claim on: patience is a second, and starting forty programs takes a while.
const WATCHED: Duration = Duration::from_secs(3);

/// So many DENs, which have heard of each other.
async fn dens(world: &World, count: usize) -> anyhow::Result<Vec<Den>> {
    let mut dens = Vec::new();
    for number in 0..count {
        dens.push(world.den_at_work(&format!("n{number}")).await?);
    }
    let known = format!("nodes={count}");
    eventually("all DENs to know each other", || async {
        let logs =
            (0..count).map(|number| std::fs::read_to_string(world.path().join(format!("n{number}.log"))));
        let logs = logs.collect::<Result<Vec<String>, _>>()?;
        Ok(logs.iter().all(|log| log.contains(&known)).then_some(()))
    })
    .await?;
    Ok(dens)
}

/// The most that each node had claimed or running at once in the first seconds.
async fn most_of_each(world: &World, queue: QueueId) -> anyhow::Result<HashMap<String, u64>> {
    let taken = doc! { "status": { "$in": [-1, 0] } };
    eventually("the first claim", || async {
        Ok((world.count(queue, taken.clone()).await? > 0).then_some(()))
    })
    .await?;
    let mut most: HashMap<String, u64> = HashMap::new();
    let (end, mut looks) = (Instant::now() + WATCHED, interval(Duration::from_millis(50)));
    while Instant::now() < end {
        looks.tick().await;
        let mut now: HashMap<String, u64> = HashMap::new();
        for task in world.tasks_of(queue).await? {
            if matches!(task.get_i32("status"), Ok(-1 | 0)) {
                *now.entry(task.get_str("node")?.to_owned()).or_default() += 1;
            }
        }
        for (node, tasks) in now {
            let most = most.entry(node).or_default();
            *most = tasks.max(*most);
        }
    }
    Ok(most)
}

/// How many tasks each node has run.
fn by_node(tasks: &[Document]) -> HashMap<&str, usize> {
    let mut nodes: HashMap<&str, usize> = HashMap::new();
    for task in tasks {
        *nodes.entry(task.get_str("node").unwrap_or_default()).or_default() += 1;
    }
    nodes
}

const SECOND: Script<'_> = Script { name: "Second", text: "#!/bin/sh\nexec sleep 1\n" };

#[tokio::test]
async fn a_backlog_is_shared_by_four_idle_nodes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SECOND, 40).await?;
    let _dens = dens(&world, 4).await?;
    world.submit(queue, vec![doc! {}; 200]).await?;
    let most = most_of_each(&world, queue).await?;
    for node in ["n0", "n1", "n2", "n3"] {
        let tasks = most.get(node).copied().unwrap_or(0);
        assert!(tasks >= 5, "half of its share of 10, not {tasks}: {most:?}");
    }
    let tasks = world.until_all_ended(queue).await?;
    let nodes = by_node(&tasks);
    assert!(nodes.len() == 4 && nodes.values().all(|tasks| *tasks >= 20), "{nodes:?}");
    world.end().await
}

#[tokio::test]
async fn shares_go_by_maxthreads() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SECOND, 16).await?;
    let nodes = world.database().collection::<Document>("nodes");
    for (node, maxthreads) in [("n0", 6), ("n1", 18)] {
        nodes.insert_one(doc! { "node": node, "maxthreads": maxthreads }).await?;
    }
    let _dens = dens(&world, 2).await?;
    world.submit(queue, vec![doc! {}; 80]).await?;
    let most = most_of_each(&world, queue).await?;
    let (few, many) = (most.get("n0").copied().unwrap_or(0), most.get("n1").copied().unwrap_or(0));
    assert!((2..=6).contains(&few) && many >= 6, "shares are 4 and 12: {most:?}");
    world.until_all_ended(queue).await?;
    world.end().await
}

/// When the tasks were claimed: the last entry of their histories that says so, or that of a start which was a claim, too.
fn claimed_at(task: &Document) -> anyhow::Result<i64> {
    let history = || task.get_array("history").map(|all| all.iter().filter_map(|entry| entry.as_document()));
    let with = |status: i32, entry: &&Document| entry.get_i32("status").ok() == Some(status);
    let claim = history()?.rfind(|entry| with(-1, entry)).or(history()?.rfind(|entry| with(0, entry)));
    Ok(claim.context("it was not claimed")?.get_datetime("at")?.timestamp_millis())
}

#[tokio::test]
async fn a_node_that_is_alone_takes_all_slots_at_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Long", text: "#!/bin/sh\nexec sleep 4\n" }, 40).await?;
    let nodes = world.database().collection::<Document>("nodes");
    let now = bson::DateTime::from_millis(ObjectId::new().timestamp().timestamp_millis());
    let gone = bson::DateTime::from_millis(now.timestamp_millis() - 60_000);
    let ours = doc! { "instance": "i", "plugins": ["Long"], "running": 0, "lease_ms": 30_000, "seen": gone };
    for (node, fields) in [
        ("dead", doc! { "state": "alive" }),
        ("stopped", doc! { "state": "stopped" }),
        ("draining", doc! { "state": "draining", "seen": now }),
    ] {
        let mut entry = ours.clone();
        entry.extend(doc! { "node": node });
        entry.extend(fields);
        nodes.insert_one(entry).await?;
    }
    nodes.insert_one(doc! { "node": "perl", "timestamp": now }).await?;
    let _den = dens(&world, 1).await?;
    world.submit(queue, vec![doc! {}; 40]).await?;
    let tasks = world.until_all_ended(queue).await?;
    let times = tasks.iter().map(claimed_at).collect::<anyhow::Result<Vec<i64>>>()?;
    let took = times.iter().max().context("no task")? - times.iter().min().context("no task")?;
    assert!(took < 900, "{took} ms: it has waited for somebody");
    world.end().await
}

#[tokio::test]
async fn what_a_living_node_does_not_take_is_taken_by_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Long", text: "#!/bin/sh\nexec sleep 6\n" }, 20).await?;
    let store = world.store();
    let idler = NodeName::new("idler");
    let beat = Beat {
        instance: "i".to_owned(),
        lease: Duration::from_secs(30),
        plugins: vec!["Long".to_owned()],
        ..Beat::default()
    };
    store.heartbeat(&idler, &beat).await?;
    let _den = world.den_at_work("n0").await?;
    eventually("the DEN to know of the other", || async {
        store.heartbeat(&idler, &beat).await?;
        Ok(std::fs::read_to_string(world.path().join("n0.log"))?.contains("nodes=2").then_some(()))
    })
    .await?;
    world.submit(queue, vec![doc! {}; 20]).await?;
    eventually("all slots to be taken", || async {
        store.heartbeat(&idler, &beat).await?;
        Ok((world.count(queue, doc! { "status": { "$in": [-1, 0] } }).await? == 20).then_some(()))
    })
    .await?;
    let tasks = world.until_all_ended(queue).await?;
    let mut times = tasks.iter().map(claimed_at).collect::<anyhow::Result<Vec<i64>>>()?;
    times.sort_unstable();
    // That second begins before the first claim is written.
    let gap = times[10] - times[9];
    assert!(gap >= 500, "the other's share is left to it for a second: {times:?}");
    assert!(times[9] - times[0] < gap, "its own share at once: {times:?}");
    assert!(times[19] - times[0] < 5_000, "and not for long: {times:?}");
    world.end().await
}
