//! A DEN claims the right tasks, in the right order, within the limits.

use std::collections::HashSet;
use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_core::model::QueueId;
use disbatch_tests::{Script, Server, World, always, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

/// Appends the task's `n` to a file in the order of execution.
fn recorder(world: &World) -> String {
    let file = world.path().join("order");
    format!("#!/bin/sh\nprintf '%s\\n' \"$JOB_PARAMS\" >> {}\n", file.display())
}

fn recorded(world: &World) -> anyhow::Result<Vec<i32>> {
    let text = std::fs::read_to_string(world.path().join("order"))?;
    text.lines().map(|line| Ok(serde_json::from_str::<Document>(line)?.get_i32("n")?)).collect()
}

async fn order_of(sort: &str, server: Server) -> anyhow::Result<Vec<i32>> {
    let world = World::on(server).await?;
    let queue = world.script_queue(Script { name: "Recorder", text: &recorder(&world) }, 1).await?;
    world.update_queue(queue, doc! { "sort": sort }).await?;
    world.submit(queue, (0..10).map(|n| doc! { "n": n }).collect()).await?;
    let den = world.den("n1")?;
    let tasks = world.until_all_ended(queue).await?;
    assert!(tasks.iter().all(|task| task.get_i32("status").ok() == Some(1)), "{tasks:?}");
    let order = recorded(&world)?;
    den.end_with(Signal::SIGTERM).await?;
    world.end().await?;
    Ok(order)
}

#[tokio::test]
async fn fifo_runs_the_oldest_first() -> anyhow::Result<()> {
    assert_eq!(order_of("fifo", Server::ReplicaSet).await?, (0..10).collect::<Vec<_>>());
    assert_eq!(order_of("fifo", Server::Standalone).await?, (0..10).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn lifo_runs_the_newest_first() -> anyhow::Result<()> {
    assert_eq!(order_of("lifo", Server::ReplicaSet).await?, (0..10).rev().collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn default_and_unknown_orders_run_everything_once() -> anyhow::Result<()> {
    for sort in ["default", "sideways"] {
        let mut order = order_of(sort, Server::Standalone).await?;
        order.sort_unstable();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
    }
    Ok(())
}

#[tokio::test]
async fn tasks_of_old_and_perl_clients_are_claimed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": "2", "sort": "fifo" }).await?;
    let old = doc! { "commands": "a", "noreport": 1 };
    let ids = world.submit(queue, vec![old.clone(), doc! { "commands": "b", "noreport": 1 }]).await?;
    // Disbatch 3: node -1, times as integers, parameters under their old name.
    let at = Bson::Int32(1_461_694_000);
    world.set(ids[0], doc! { "node": -1, "ctime": &at, "mtime": at, "parameters": old }).await?;
    world.tasks().update_one(doc! { "_id": ids[0] }, doc! { "$unset": { "params": 1 } }).await?;
    let _den = world.den("n1")?;
    let tasks = world.until_all_ended(queue).await?;
    assert_eq!(tasks[0].get_str("stdout")?, "This is command 'a' for apple.\n");
    assert_eq!(tasks[1].get_str("stderr")?, "This is command 'b' for banana.\n");
    assert!(tasks.iter().all(|task| task.get_str("node").unwrap() == "n1"));
    world.end().await
}

/// Keeps a mark in a folder while it runs, and notes how many marks there were at most.
const COUNTER: &str = "#!/bin/sh
cd \"$MARKS\" || exit 1
touch \"mark-$DISBATCH_TASK_ID\"
ls | grep -c mark- >> ../counts
sleep 0.2
rm \"mark-$DISBATCH_TASK_ID\"
";

fn counter(world: &World) -> anyhow::Result<String> {
    let marks = world.path().join("marks");
    std::fs::create_dir(&marks)?;
    Ok(COUNTER.replace("$MARKS", &marks.display().to_string()))
}

fn most_at_once(world: &World) -> anyhow::Result<usize> {
    let counts = std::fs::read_to_string(world.path().join("counts"))?;
    Ok(counts.lines().map(str::parse).collect::<Result<Vec<usize>, _>>()?.into_iter().max().unwrap_or(0))
}

#[tokio::test]
async fn threads_bound_a_queue_and_are_used() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Counter", text: &counter(&world)? }, 3).await?;
    world.submit(queue, vec![doc! {}; 15]).await?;
    let _den = world.den("n1")?;
    world.until_all_ended(queue).await?;
    assert_eq!(most_at_once(&world)?, 3);
    world.end().await
}

#[tokio::test]
async fn maxthreads_bounds_a_node_over_all_queues() -> anyhow::Result<()> {
    let world = World::new().await?;
    let first = world.script_queue(Script { name: "Counter", text: &counter(&world)? }, 5).await?;
    let second = world.queue("Counter", doc! { "threads": 5 }).await?;
    world
        .database()
        .collection::<Document>("nodes")
        .insert_one(doc! { "node": "n1", "maxthreads": "2" })
        .await?;
    for queue in [first, second] {
        world.submit(queue, vec![doc! {}; 6]).await?;
    }
    let _den = world.den("n1")?;
    for queue in [first, second] {
        world.until_all_ended(queue).await?;
    }
    assert_eq!(most_at_once(&world)?, 2);
    world.end().await
}

#[tokio::test]
async fn a_queue_without_threads_and_a_node_with_none_run_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let idle = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let null = world.queue("Disbatch::Plugin::Demo", doc! { "threads": Bson::Null }).await?;
    for queue in [idle, null] {
        world.submit(queue, vec![doc! { "commands": "a" }]).await?;
    }
    let _den = world.den_at_work("n1").await?;
    always("nothing is claimed", Duration::from_secs(3), || async {
        Ok(world.tasks().count_documents(doc! { "status": { "$ne": -2 } }).await? == 0)
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn activequeues_wins_over_ignorequeues() -> anyhow::Result<()> {
    let world = World::new().await?;
    let demo = doc! { "threads": 1 };
    let served = world.queue("Disbatch::Plugin::Demo", demo.clone()).await?;
    let left = world.queue("Disbatch::Plugin::Demo", demo).await?;
    for queue in [served, left] {
        world.submit(queue, vec![doc! { "commands": "a", "noreport": 1 }]).await?;
    }
    let served_alone = |world: &World, queue: QueueId, other: QueueId| {
        let tasks = world.tasks();
        async move {
            tasks.count_documents(doc! { "queue": queue, "status": 1 }).await.unwrap() == 1
                && tasks.count_documents(doc! { "queue": other, "status": -2 }).await.unwrap() == 1
        }
    };
    world.configure(json!({ "activequeues": [served.to_string()], "ignorequeues": [served.to_string()] }))?;
    let den = world.den("n1")?;
    eventually("the active queue to be served", || async {
        Ok(served_alone(&world, served, left).await.then_some(()))
    })
    .await?;
    always("the other is left alone", Duration::from_secs(2), || async {
        Ok(served_alone(&world, served, left).await)
    })
    .await?;
    den.end_with(Signal::SIGTERM).await?;
    world.configure(json!({ "ignorequeues": [served.to_string()] }))?;
    let _den = world.den("n1")?;
    world.until_all_ended(left).await?;
    world.end().await
}

#[tokio::test]
async fn a_queue_waits_for_its_plugin_to_be_installed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Late::Plugin", doc! { "threads": 1 }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let den = world.den_at_work("n1").await?;
    eventually("a word about the missing plugin", || async {
        Ok(den.log()?.contains("plugin Late::Plugin is not available on this node").then_some(()))
    })
    .await?;
    assert_eq!(world.status(ids[0]).await?, -2);
    Script { name: "Late::Plugin", text: "#!/bin/sh\necho here\n" }.install(&world.plugins())?;
    let task = world.until_status(ids[0], 1).await?;
    assert_eq!(task.get_str("stdout")?, "here\n");
    world.end().await
}

#[tokio::test]
async fn a_submission_is_noticed_at_once_on_a_replica_set() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 1 }).await?;
    let den = world.den_at_work("n1").await?;
    // Between two ticks of the loop there is a second. Most of ten submissions must not wait for one: with
    // polling alone, half of them would take longer than half a second.
    let mut waits = Vec::new();
    for _ in 0..10 {
        let ids = world.submit(queue, vec![doc! { "commands": "a", "noreport": 1 }]).await?;
        let task = world.until_status(ids[0], 1).await?;
        let (created, ended) = (task.get_datetime("ctime")?, task.get_datetime("mtime")?);
        waits.push(ended.timestamp_millis() - created.timestamp_millis());
    }
    waits.sort_unstable();
    assert!(waits[7] < 500, "waited {waits:?} ms; {}", den.log()?);
    world.end().await
}

#[tokio::test]
async fn four_dens_never_run_a_task_twice() -> anyhow::Result<()> {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let world = World::on(server).await?;
        let queue = world.script_queue(Script { name: "Recorder", text: &recorder(&world) }, 8).await?;
        world.update_queue(queue, doc! { "sort": "fifo" }).await?;
        let mut dens = Vec::new();
        let nodes = world.database().collection::<Document>("nodes");
        for node in ["n1", "n2", "n3", "n4"] {
            // Or the first one might take all places, and fill them again and again.
            nodes.insert_one(doc! { "node": node, "maxthreads": 4 }).await?;
            dens.push(world.den_at_work(node).await?);
        }
        world.submit(queue, (0..200).map(|n| doc! { "n": n }).collect()).await?;
        let tasks = world.until_all_ended(queue).await?;
        let order = recorded(&world)?;
        assert_eq!(order.len(), 200, "a task ran twice or not at all");
        assert_eq!(order.iter().collect::<HashSet<_>>().len(), 200);
        let nodes: HashSet<&str> = tasks.iter().map(|task| task.get_str("node").unwrap()).collect();
        assert!(nodes.len() > 1, "only {nodes:?} worked");
        for den in dens {
            den.end_with(Signal::SIGTERM).await?;
        }
        world.end().await?;
    }
    Ok(())
}
