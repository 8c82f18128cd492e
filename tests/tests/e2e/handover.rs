//! Starts in one write: of tasks for which a runner is ready, and of those that get the slot of a task that has ended.

use anyhow::{Context, ensure};
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{Queue, QueueId, Status, TaskId};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{
    Ahead, Claim, Finished, Queued, RunWrite, Slot, Start, Started, Take, Unclaimed, Written,
};
use disbatch_tests::{Script, Server, World, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::claims::{claimant, index_slots, queue, start, success};

const STORED: Written = Written::Finished(Finished::Stored);

/// Does what little it is told to, in a process that is kept.
const SHORT: Script<'_> = Script {
    name: "Short",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
for line in sys.stdin:
    told = json.loads(line)
    time.sleep(told["task"]["params"].get("s", 0))
    done = {"id": told["env"]["DISBATCH_TASK_ID"]}
    os.write(3, json.dumps({"done": done}).encode() + b"\n")
"#,
};

async fn short_queue(world: &World, threads: i32) -> anyhow::Result<QueueId> {
    let manifest = json!({ "name": SHORT.name, "command": ["./run"], "warm": true });
    SHORT.install_as(&world.plugins(), &manifest)?;
    world.queue(SHORT.name, doc! { "threads": threads, "sort": "fifo" }).await
}

/// One task that runs, and those that come after it.
pub struct Scene {
    pub world: World,
    store: Store,
    queue: Queue,
    pub running: Claim,
    ahead: Ahead,
}

impl Scene {
    pub async fn new() -> anyhow::Result<Self> {
        let world = World::new().await?;
        let store = world.store();
        store.ensure_indexes().await?;
        let id = world.queue("Demo", doc! { "threads": 1, "sort": "fifo" }).await?;
        world.submit(id, (0..4).map(|number| doc! { "n": number }).collect()).await?;
        let queue = queue(&world, id).await?;
        let (den, mut ahead) = (claimant("n1"), Ahead::default());
        let slot = Slot { number: 0, runner: Some(77) };
        let batch = store.take_tasks(&queue, &den, &[slot], &mut ahead).await?;
        let running = batch.claims.into_iter().next().context("nothing was claimed")?;
        Ok(Self { world, store, queue, running, ahead })
    }

    pub async fn read_ahead(&mut self, tasks: usize) -> anyhow::Result<Vec<Queued>> {
        Ok(self.store.read_ahead(&self.queue, &mut self.ahead, tasks).await?)
    }

    pub fn take(&self, queued: &Queued) -> anyhow::Result<Take> {
        let slot = Slot { number: self.running.slot().context("it has no slot")?, runner: Some(77) };
        let take = queued.take(self.queue.id, &claimant("n1"), (slot, self.store.now()));
        take.context("it has no runner")
    }

    pub fn end(&self) -> RunWrite {
        RunWrite::Finish { run: self.running.run(), finish: success("done\n") }
    }

    pub async fn write(&self, writes: &[RunWrite]) -> anyhow::Result<Vec<Written>> {
        Ok(self.store.write_runs(writes).await?.into_iter().collect::<Result<_, StoreError>>()?)
    }
}

fn statuses(task: &Document) -> Vec<i32> {
    let history = task.get_array("history").map(Vec::as_slice).unwrap_or_default();
    let entries = history.iter().filter_map(Bson::as_document);
    entries.filter_map(|entry| entry.get_i32("status").ok()).collect()
}

#[tokio::test]
async fn a_task_is_claimed_and_started_in_one_write() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let claim = &scene.running;
    let stored = scene.world.task(claim.task).await?;
    assert_eq!((claim.is_started, claim.runner(), claim.slot()), (true, Some(77), Some(0)));
    assert_eq!(bson::deserialize_from_slice::<Document>(claim.document.as_bytes())?, stored);
    assert_eq!((stored.get_i32("status")?, stored.get_i64("pid")?, statuses(&stored)), (0, 77, vec![0]));
    assert_eq!(stored.get_datetime("started")?, stored.get_datetime("mtime")?);
    // As long as nobody has begun it, it can be given back, once.
    assert_eq!(scene.store.unclaim_task(claim, "a test").await?, Unclaimed::Queued);
    assert_eq!(scene.store.unclaim_task(claim, "a test").await?, Unclaimed::NotClaimed);
    let stored = scene.world.task(claim.task).await?;
    assert_eq!((stored.get_i32("status")?, stored.get("slot"), stored.get("started")), (-2, None, None));
    scene.world.end().await
}

#[tokio::test]
async fn many_tasks_are_claimed_and_started_in_one_write() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let id = world.queue("Demo", doc! { "threads": 8, "sort": "fifo" }).await?;
    let ids = world.submit(id, (0..8).map(|number| doc! { "n": number }).collect()).await?;
    // What it needs besides a runner is looked after between claim and start.
    world.set(ids[2], doc! { "locks": [{ "name": "one" }] }).await?;
    let slots: Vec<Slot> = (0..8).map(|number| Slot { number, runner: Some(77) }).collect();
    let queue = queue(&world, id).await?;
    let batch = store.take_tasks(&queue, &claimant("n1"), &slots, &mut Ahead::default()).await?;
    assert_eq!(batch.claims.len(), 8);
    let mut places: Vec<Option<u64>> = batch.claims.iter().map(Claim::slot).collect();
    places.sort_unstable();
    assert_eq!(places, (0..8).map(Some).collect::<Vec<_>>());
    for claim in &batch.claims {
        let stored = world.task(claim.task).await?;
        let is_locked = claim.task == ids[2];
        let status = if is_locked { -1 } else { 0 };
        assert_eq!((claim.is_started, stored.get_i32("status")?), (!is_locked, status));
        assert_eq!(statuses(&stored), [status], "there was no claim before its start");
        assert_eq!(stored.get_i64("slot")?.unsigned_abs(), claim.slot().context("it has a slot")?);
        if !is_locked {
            assert_eq!(claim.runner(), Some(77));
        }
    }
    // Where the index of releases before is, whoever believes that these slots are free is refused, whatever way tasks are taken.
    index_slots(&world).await?;
    let more = world.submit(id, vec![doc! {}; 6]).await?;
    let batch = store.take_tasks(&queue, &claimant("n2"), &slots, &mut Ahead::default()).await?;
    assert!(batch.claims.is_empty() && !batch.taken.is_empty());
    for task in more {
        assert_eq!(world.task(task).await?.get_i32("status")?, -2);
    }
    world.end().await
}

#[tokio::test]
async fn what_a_ready_runner_was_not_told_of_is_given_back_whoever_had_it_before() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let claim = &scene.running;
    let (node, of) = (claim.node.clone(), claim.instance.as_str());
    // An earlier claim of it was lost with its primary, and another runner still believes to have it.
    let held = [claim.task];
    assert_eq!(
        scene.store.unclaim_all((&node, of), (&held, &[(78, Vec::new())]), "a test").await?,
        0,
        "of no ready runner"
    );
    assert_eq!(
        scene.store.unclaim_all((&node, of), (&[], &[(77, held.to_vec())]), "a test").await?,
        0,
        "it has been told, and may have more"
    );
    assert_eq!(scene.store.unclaim_all((&node, of), (&held, &[(77, vec![])]), "a test").await?, 1);
    assert_eq!(scene.world.task(claim.task).await?.get_i32("status")?, -2);
    scene.world.end().await
}

#[tokio::test]
async fn a_runner_without_its_den_begins_what_nobody_has_given_back() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let (store, claim) = (&scene.store, &scene.running);
    let at = DateTime::from_millis(claim.started_at().context("it has a time")?.timestamp_millis() + 1);
    let again = Start { from: Status::Running, claimed: claim.started_at(), at, ..start(claim, store, 77) };
    assert!(matches!(store.start_task(&again).await?, Started::Running(..)));
    // An answer that was lost.
    assert!(matches!(store.start_task(&again).await?, Started::Running(..)));
    assert_eq!(store.unclaim_task(claim, "a test").await?, Unclaimed::NotClaimed, "it has been begun");
    assert_eq!(store.finish_task(&claim.run(), &success("")).await?, Finished::Stored);
    scene.world.end().await?;
    let scene = Scene::new().await?;
    let (store, claim) = (&scene.store, &scene.running);
    assert_eq!(store.unclaim_task(claim, "a test").await?, Unclaimed::Queued);
    let late = Start { from: Status::Running, claimed: claim.started_at(), at, ..start(claim, store, 77) };
    assert!(matches!(store.start_task(&late).await?, Started::NotClaimed), "it was given back");
    scene.world.end().await
}

#[tokio::test]
async fn the_slot_of_a_task_that_ends_goes_to_the_next_in_the_same_command() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    index_slots(&scene.world).await?;
    let queued = scene.read_ahead(2).await?;
    let take = scene.take(&queued[0])?;
    let early = scene.write(&[RunWrite::Take(take.clone())]).await?;
    assert_eq!(early, [Written::SlotTaken]);
    let writes = [scene.end(), RunWrite::Take(take.clone())];
    assert_eq!(scene.write(&writes).await?, [STORED, Written::Started]);
    assert_eq!(scene.write(&writes).await?, [STORED, Written::Started], "an answer that was lost");
    // What its runner is told is what is stored, without reading it.
    let claim = queued.into_iter().next().context("it was read")?.taken(&take);
    let mut told: Document = bson::deserialize_from_slice(claim.document.as_bytes())?;
    let mut stored = scene.world.task(claim.task).await?;
    assert_eq!(statuses(&told), [0]);
    for task in [&mut told, &mut stored] {
        task.remove("lease_until").context("it has a lease")?;
        for entry in task.get_array_mut("history")? {
            entry.as_document_mut().context("an entry")?.remove("at");
        }
    }
    assert_eq!(told, stored);
    assert_eq!(scene.store.finish_task(&claim.run(), &success("")).await?, Finished::Stored);
    scene.world.end().await
}

#[tokio::test]
async fn a_task_is_not_taken_that_is_not_as_it_was_read() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let queued = scene.read_ahead(3).await?;
    let takes = queued.iter().map(|queued| scene.take(queued)).collect::<anyhow::Result<Vec<_>>>()?;
    scene.write(&[scene.end()]).await?;
    let later = DateTime::from_millis(SystemClock.now().timestamp_millis() + 5);
    scene.world.set(queued[0].task, doc! { "params": { "n": 9 }, "mtime": later }).await?;
    scene.world.set(queued[1].task, doc! { "attempt": 1 }).await?;
    scene.world.set(queued[2].task, doc! { "status": -5 }).await?;
    for take in takes {
        assert_eq!(scene.write(&[RunWrite::Take(take)]).await?, [Written::NotClaimed]);
    }
    scene.world.end().await
}

#[tokio::test]
async fn what_needs_more_than_a_slot_is_not_read_ahead_and_nothing_behind_it() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let waiting: Vec<TaskId> = scene.read_ahead(3).await?.iter().map(|queued| queued.task).collect();
    assert_eq!(waiting.len(), 3);
    scene.ahead.put_back(scene.queue.id, waiting.clone());
    scene.world.set(waiting[1], doc! { "deadline": DateTime::from_millis(4_000_000_000_000) }).await?;
    let queued = scene.read_ahead(3).await?;
    assert_eq!(queued.iter().map(|queued| queued.task).collect::<Vec<_>>(), waiting[..1]);
    // It is claimed in its turn.
    scene.write(&[scene.end()]).await?;
    let batch = scene.store.claim_tasks(&scene.queue, &claimant("n1"), &[0], &mut scene.ahead).await?;
    assert_eq!(batch.claims.iter().map(|claim| claim.task).collect::<Vec<_>>(), waiting[1..2]);
    scene.world.end().await
}

#[tokio::test]
async fn slots_go_from_task_to_task_and_each_task_runs_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = short_queue(&world, 4).await?;
    world.submit(id, vec![doc! { "s": 0.002 }; 600]).await?;
    let _den = world.den("n1")?;
    let tasks = world.until_all_ended(id).await?;
    let mut handed = 0;
    for task in &tasks {
        assert_eq!((task.get_i32("status")?, task.get("slot")), (1, None), "{task}");
        // One whose start took long was given back, and nobody had been told of it.
        assert_eq!(statuses(task).iter().filter(|status| **status == 1).count(), 1, "{task}");
        handed += usize::from(statuses(task) == [0, 1]);
    }
    // Those for which runners had to be started first were claimed before.
    ensure!(handed > 500, "{handed} of 600 were started in one write");
    world.end().await
}

#[tokio::test]
async fn a_pause_and_a_lower_limit_hold_for_what_is_started_a_second_later() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = short_queue(&world, 6).await?;
    world.submit(id, vec![doc! { "s": 0.01 }; 4_000]).await?;
    let _dens = [world.den_at_work("n1").await?, world.den_at_work("n2").await?];
    let running = doc! { "status": { "$in": [-1, 0] } };
    eventually("tasks to run", async || Ok((world.count(id, running.clone()).await? >= 6).then_some(())))
        .await?;
    world.update_queue(id, doc! { "threads": 2 }).await?;
    let changed = SystemClock.now().timestamp_millis();
    eventually("a lower limit to hold", async || {
        let late = SystemClock.now().timestamp_millis() > changed + 1_000;
        Ok((late && world.count(id, running.clone()).await? <= 2).then_some(()))
    })
    .await?;
    let mut counted = 0;
    while counted < 200 {
        let running = world.count(id, running.clone()).await?;
        ensure!(running <= 2, "{running} run");
        counted += 1;
    }
    world.update_queue(id, doc! { "threads": 0 }).await?;
    let paused = SystemClock.now().timestamp_millis();
    eventually("all to have ended", async || {
        let late = SystemClock.now().timestamp_millis() > paused + 1_500;
        Ok((late && world.count(id, running.clone()).await? == 0).then_some(()))
    })
    .await?;
    let late = DateTime::from_millis(paused + 1_000);
    assert_eq!(world.count(id, doc! { "started": { "$gt": late } }).await?, 0);
    ensure!(world.count(id, doc! { "status": -2 }).await? > 0, "there was nothing left to start");
    world.end().await
}

/// Without a change stream nobody tells of it.
#[tokio::test]
async fn tasks_that_were_read_ahead_start_with_the_settings_that_their_queue_has_then() -> anyhow::Result<()>
{
    let world = World::on(Server::Standalone).await?;
    let script = Script { name: "Named", text: "#!/bin/sh\nsleep 0.05\nprintf %s \"$DISBATCH_QUEUE\"\n" };
    script.install_as(&world.plugins(), &json!({ "name": script.name, "command": ["./run"] }))?;
    let id = world.queue(script.name, doc! { "threads": 1, "sort": "fifo", "name": "before" }).await?;
    world.submit(id, vec![doc! {}; 100]).await?;
    let _den = world.den_at_work("n1").await?;
    eventually("some to run", async || Ok((world.count(id, doc! { "status": 1 }).await? > 3).then_some(())))
        .await?;
    world.update_queue(id, doc! { "name": "after" }).await?;
    let changed = SystemClock.now().timestamp_millis();
    let (mut before, mut after) = (0, 0);
    for task in world.until_all_ended(id).await? {
        let started = task.get_datetime("started")?.timestamp_millis();
        match task.get_str("stdout")? {
            "before" => ensure!(started <= changed + 1_000, "{} ms late: {task}", started - changed),
            "after" if started > changed + 1_000 => after += 1,
            _ => {}
        }
        before += usize::from(started <= changed);
    }
    ensure!(before > 3 && after > 3, "{before} started before, {after} later");
    world.end().await
}

#[tokio::test]
async fn nothing_is_lost_when_a_runner_or_its_den_is_killed_while_slots_change_hands() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "lease": 3 }))?;
    let id = short_queue(&world, 8).await?;
    world.submit(id, vec![doc! { "s": 0.003 }; 1_500]).await?;
    for round in 0..3 {
        let den = world.den(&format!("n{round}"))?;
        let before = world.count(id, doc! { "status": 1 }).await?;
        eventually("some to run", async || {
            Ok((world.count(id, doc! { "status": 1 }).await? > before + 200).then_some(()))
        })
        .await?;
        den.end_with(Signal::SIGKILL).await?;
    }
    let _den = world.den("last")?;
    let tasks = world.until_all_ended(id).await?;
    let mut lost = 0;
    for task in &tasks {
        match task.get_i32("status")? {
            1 => {}
            // It was started, and whoever started it died.
            -6 => lost += 1,
            other => anyhow::bail!("{other}: {task}"),
        }
    }
    ensure!(lost <= 3 * 8, "{lost} were orphaned");
    world.end().await
}
