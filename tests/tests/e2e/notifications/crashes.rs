//! Who dies while others are told, and who is told of those that die.

use std::time::Duration;

use anyhow::Context;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{TaskId, whole_number};
use disbatch_core::notifications::QUEUE;
use disbatch_tests::hook::{Manner, count_events};
use disbatch_tests::{Den, Script, World, eventually};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::time::{Instant, interval};

use super::{Scene, count_of, names, soon, tasks_of};

const NODES: [&str; 2] = ["n1", "n2"];

/// So often somebody dies or is stopped.
const WAVES: usize = 5;

/// So many tasks fail meanwhile.
const WAVE: usize = 40;

/// So long it is waited for a message that has no task yet.
const MOMENT: Duration = Duration::from_secs(2);

/// Kills its runner in as many attempts as its task says. Its parent is the guard, whose parent is the runner.
const REGICIDE: Script<'_> = Script {
    name: "Regicide",
    text: "#!/bin/sh\nread -r line\nattempts=$(printf %s \"$JOB_PARAMS\" | tr -dc 0-9)\n\
           [ \"$DISBATCH_ATTEMPT\" -gt \"$attempts\" ] && exit 0\n\
           read -r _ _ _ runner _ < /proc/$PPID/stat\nkill -9 \"$runner\"\nsleep 1000\n",
};

/// The node that tells.
async fn leader(world: &World) -> anyhow::Result<String> {
    let leases = world.database().collection::<Document>("leases");
    eventually("somebody who tells", || async {
        let held = doc! { "_id": "notifier", "instance": { "$type": "string" } };
        let lease = leases.find_one(held).await?.unwrap_or_default();
        // As NODE:PROCESS.
        Ok(lease.get_str("instance").ok().and_then(|instance| instance.split(':').next()).map(str::to_owned))
    })
    .await
}

/// As if the lease had run out, or been given back.
async fn end_lease(world: &World) -> anyhow::Result<()> {
    let leases = world.database().collection::<Document>("leases");
    let nobodys = doc! { "$set": { "instance": Bson::Null, "until": DateTime::from_millis(0) } };
    leases.update_one(doc! { "_id": "notifier" }, nobodys).await?;
    Ok(())
}

/// Waits for a message that is to get its task. That none is seen is no matter: it is soon over.
async fn until_message(world: &World) -> anyhow::Result<()> {
    let subscriptions = world.database().collection::<Document>("subscriptions");
    let composed = doc! { "state.outbox": { "$type": "object" } };
    let deadline = Instant::now() + MOMENT;
    let mut looks = interval(Duration::from_millis(1));
    while Instant::now() < deadline && subscriptions.find_one(composed.clone()).await?.is_none() {
        looks.tick().await;
    }
    Ok(())
}

/// The DEN that tells is killed and started again, or stopped until another one tells, and then goes on where it was.
async fn disturb(world: &World, dens: &mut Vec<(&str, Den)>, with: Signal) -> anyhow::Result<()> {
    let leading = leader(world).await?;
    let index = dens.iter().position(|(name, _)| *name == leading).context("another node tells")?;
    let (name, mut den) = dens.swap_remove(index);
    if with == Signal::SIGKILL {
        den.end_with(with).await?;
        end_lease(world).await?;
        den = world.den(name)?;
    } else {
        den.signal(with)?;
        end_lease(world).await?;
        eventually("another one who tells", || async { Ok((leader(world).await? != name).then_some(())) })
            .await?;
        den.signal(Signal::SIGCONT)?;
    }
    dens.push((name, den));
    Ok(())
}

#[tokio::test]
async fn each_failure_is_told_once_whoever_dies_while_it_is_told() -> anyhow::Result<()> {
    let manners = [Manner::HangsUp, Manner::Takes, Manner::Refuses, Manner::Takes].repeat(3);
    let scene = Scene::with(&json!({ "lease": 2 }), manners).await?;
    let world = &scene.world;
    let queue = scene.queue("imports").await?;
    scene.subscribe("each", &json!({ "events": ["failed"] })).await?;
    world.update_queue(QUEUE, doc! { "max_attempts": 100, "backoff": soon() }).await?;
    let mut dens = Vec::new();
    for node in NODES {
        dens.push((node, world.den_at_work(node).await?));
    }
    for wave in 0..WAVES {
        world.submit(queue, vec![doc! { "do": "fail" }; WAVE]).await?;
        until_message(world).await?;
        let signal = if wave % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP };
        disturb(world, &mut dens, signal).await?;
    }
    let tasks = world.until_all_ended(queue).await?;
    let failed = tasks.iter().filter(|task| matches!(task.get_i32("status"), Ok(2 | -6))).count();
    assert_eq!((failed, tasks.len()), (WAVES * WAVE, WAVES * WAVE));
    let all = i64::try_from(failed)?;
    scene.until_events("failed", all).await?;
    let messages = scene.until_last().await?;
    assert_eq!((count_of(&messages, "failed", "imports"), count_events(&messages, "failed")), (all, all + 1));
    let mut numbers: Vec<_> = messages.iter().filter_map(|message| message["number"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..).take(messages.len()).collect::<Vec<i64>>(), "none is missing");

    // The tasks that have delivered them say the same, and there is one for each.
    let mut counted = 0;
    let delivered = world.tasks_of(QUEUE).await?;
    for task in &delivered {
        assert_eq!(task.get_i32("status")?, 1, "{task}");
        let message = task.get_document("params")?.get_document("message")?;
        assert_eq!(message.get_str("id")?, task.get_object_id("_id")?.to_hex());
        counted += message.get("count").and_then(whole_number).context("no count")?;
    }
    assert_eq!((counted, delivered.len()), (all + 1, messages.len()));
    scene.world.end().await
}

#[tokio::test]
async fn a_lost_runner_is_told_once_whether_its_task_is_tried_again_or_not() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    REGICIDE.install(&world.plugins())?;
    scene.subscribe("losses", &json!({ "events": ["lost", "failed"] })).await?;
    let again = |attempts: i32| doc! { "on_orphan": "requeue", "max_attempts": attempts, "backoff": soon() };
    let mut queues = Vec::new();
    for (name, fields, kills) in [("once", doc! {}, 1), ("again", again(3), 1), ("given up", again(2), 9)] {
        let mut queue = doc! { "name": name, "threads": 3 };
        queue.extend(fields);
        let queue = world.queue(REGICIDE.name, queue).await?;
        let ids: Vec<TaskId> = world.submit(queue, vec![doc! { "kills": kills }; 3]).await?;
        queues.push((queue, name, ids));
    }
    let _den = world.den_at_work("n1").await?;
    for (queue, name, _) in &queues {
        let status = if *name == "again" { 1 } else { -6 };
        for task in world.until_all_ended(*queue).await? {
            assert_eq!(task.get_i32("status")?, status, "{name}: {task}");
        }
    }
    let messages = scene.until_last().await?;
    let expected = [("once", 3, 3), ("again", 3, 0), ("given up", 6, 3)];
    for ((queue, lost, failed), (_, _, ids)) in expected.into_iter().zip(&queues) {
        let counts = (count_of(&messages, "lost", queue), count_of(&messages, "failed", queue));
        assert_eq!(counts, (lost, failed), "{queue}");
        assert_eq!(tasks_of(&messages, "lost", queue), names(ids), "{queue}");
    }
    assert_eq!(count_events(&messages, "lost"), 12);
    scene.world.end().await
}
