//! Slots that nodes hold: each has one holder, none is used after its holder's fence, and what a dead holder had is used again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{DateTime, Document, doc};
use disbatch_core::model::{NodeName, QueueId};
use disbatch_core::node::{Beat, beat_of};
use disbatch_core::slots::{Holder, SILENT};
use disbatch_core::store::Store;
use disbatch_core::task::{Ahead, Claimant, RunWrite, Slot, Written};
use disbatch_tests::{Script, World, eventually};
use nix::sys::signal::Signal;
use tokio::time::{Instant, interval};

use crate::claims::{claimant, enlarge, queue, success};
use crate::handover::Scene;

const SHORT: Script<'_> = Script { name: "Short", text: "#!/bin/sh\nexec sleep 0.2\n" };
const LONG: Script<'_> = Script { name: "Long", text: "#!/bin/sh\nexec sleep 600\n" };

async fn numbers(store: &Store, queue: QueueId) -> anyhow::Result<Vec<u64>> {
    let mut numbers: Vec<u64> = store.held_slots(&[queue]).await?.iter().map(|slot| slot.number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[tokio::test]
async fn a_slot_has_one_holder_and_is_taken_back_when_no_task_is_in_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let id = world.queue("Demo", doc! { "threads": 9 }).await?;
    let (one, other, node) = (Holder::drawn(), Holder::drawn(), NodeName::new("n1"));
    assert_eq!(store.hold_slots(id, (one, &node), &[0, 1, 2]).await?, [0, 1, 2]);
    assert_eq!(store.hold_slots(id, (other, &node), &[1, 2, 3]).await?, [3]);
    assert_eq!(store.hold_slots(id, (one, &node), &[0]).await?, Vec::<u64>::new(), "not twice either");
    store.release_slots(other, &[(id, 0), (id, 3)]).await?;
    assert_eq!(numbers(&store, id).await?, [0, 1, 2], "it gives up its own");
    world.submit(id, vec![doc! {}; 2]).await?;
    let of = queue(&world, id).await?;
    let claims = store.claim_tasks(&of, &claimant("n1"), &[1], &mut Ahead::default()).await?.claims;
    assert_eq!(store.take_back_slots(&HashSet::from([other])).await?, 0);
    assert_eq!(store.take_back_slots(&HashSet::from([one])).await?, 2);
    assert_eq!(numbers(&store, id).await?, [1], "a task is in it");
    assert_eq!(store.holders().await?, HashMap::from([(one, true)]));
    let claim = claims.first().context("nothing was claimed")?;
    store.unclaim_task(claim, "a test").await?;
    assert_eq!(store.take_back_slots(&HashSet::from([one])).await?, 1);
    world.end().await
}

#[tokio::test]
async fn heartbeats_tell_when_each_holder_was_seen() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, node) = (world.store(), NodeName::new("n1"));
    let (one, other) = (Holder::drawn(), Holder::drawn());
    let beat = |holder| Beat { holder: Some(holder), ..Beat::default() };
    let at = async |holder| {
        let entry = store.heartbeat(&node, &beat(holder)).await?;
        beat_of(&entry, holder).context("it is not told when it was seen")
    };
    let first = at(one).await?;
    let second = at(one).await?;
    assert_eq!(first, second, "that of the heartbeat before");
    let third = at(one).await?;
    assert!(third >= second);
    // Two DENs of one name do not hide each other.
    at(other).await?;
    let beats = store.beats_of_holders().await?;
    assert_eq!(beats.keys().copied().collect::<HashSet<_>>(), HashSet::from([one, other]));
    assert!(beats[&one] >= third && beats[&other] >= beats[&one]);
    world.end().await
}

#[tokio::test]
async fn nothing_is_started_behind_the_fence() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let id = world.queue("Demo", doc! { "threads": 9, "sort": "fifo" }).await?;
    world.submit(id, vec![doc! {}; 9]).await?;
    let of = queue(&world, id).await?;
    let now = store.now().timestamp_millis();
    let until = |at: i64| Claimant { fence: Some(DateTime::from_millis(at)), ..claimant("n1") };
    for runner in [None, Some(77)] {
        for slots in [1, 8] {
            let slots: Vec<Slot> = (0..slots).map(|number| Slot { number, runner }).collect();
            let mut ahead = Ahead::default();
            let late = store.take_tasks(&of, &until(now - 1), &slots, &mut ahead).await?;
            assert!(late.claims.is_empty(), "{slots:?}");
            assert_eq!(world.count(id, doc! { "status": -2 }).await?, 9);
            let in_time = store.take_tasks(&of, &until(now + 60_000), &slots, &mut Ahead::default()).await?;
            assert_eq!(in_time.claims.len(), slots.len());
            for claim in in_time.claims {
                store.unclaim_task(&claim, "a test").await?;
            }
        }
    }
    world.end().await
}

#[tokio::test]
async fn the_next_is_not_started_in_a_slot_that_was_not_freed() -> anyhow::Result<()> {
    let mut scene = Scene::new().await?;
    let queued = scene.read_ahead(2).await?;
    let take = scene.take(&queued[0])?;
    let next = take.task;
    // Its end is too large to be stored as it is.
    let size = bson::serialize_to_vec(&scene.world.task(scene.running.task).await?)?.len();
    enlarge(&scene.world, scene.running.task, size + 40).await?;
    let end = RunWrite::Finish { run: scene.running.run(), finish: success(&"x".repeat(5_000)) };
    let written = scene.write(&[end, RunWrite::Take(take)]).await?;
    assert_eq!(written[1], Written::NotClaimed);
    assert_eq!(scene.world.status(next).await?, -2);
    scene.world.end().await
}

/// Watches for so long that no more tasks are claimed or running than may, and that no two have one slot.
async fn watch(world: &World, queue: QueueId, threads: usize, time: Duration) -> anyhow::Result<()> {
    let (end, mut looks) = (Instant::now() + time, interval(Duration::from_millis(50)));
    while Instant::now() < end {
        looks.tick().await;
        let tasks = world.tasks_of(queue).await?;
        let taken = tasks.iter().filter(|task| matches!(task.get_i32("status"), Ok(-1 | 0)));
        let slots: Vec<i64> = taken.filter_map(|task| task.get_i64("slot").ok()).collect();
        let distinct: HashSet<&i64> = slots.iter().collect();
        ensure!(slots.len() <= threads && distinct.len() == slots.len(), "{slots:?}");
    }
    Ok(())
}

async fn until_on(world: &World, queue: QueueId, node: &str, status: i32) -> anyhow::Result<Document> {
    eventually("a task on the node", || async {
        let tasks = world.tasks_of(queue).await?;
        let is_it = |task: &Document| {
            task.get_str("node").is_ok_and(|of| of == node)
                && task.get_i32("status").is_ok_and(|is| is == status)
        };
        Ok(tasks.into_iter().find(is_it))
    })
    .await
}

#[tokio::test]
async fn a_killed_node_gives_its_slots_back_and_keeps_those_of_its_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    SHORT.install(&world.plugins())?;
    LONG.install(&world.plugins())?;
    let first = world.den_at_work("n1").await?;
    let (short, long) = (
        world.queue(SHORT.name, doc! { "threads": 1 }).await?,
        world.queue(LONG.name, doc! { "threads": 1 }).await?,
    );
    world.submit(short, vec![doc! {}]).await?;
    world.submit(long, vec![doc! {}; 2]).await?;
    until_on(&world, short, "n1", 1).await?;
    until_on(&world, long, "n1", 0).await?;
    first.end_with(Signal::SIGKILL).await?;
    let _second = world.den_at_work("n2").await?;
    world.submit(short, vec![doc! {}]).await?;
    until_on(&world, short, "n2", 1).await?;
    watch(&world, long, 1, Duration::from_secs(2)).await?;
    assert_eq!(world.count(long, doc! { "status": 0, "node": "n1" }).await?, 1, "its runner goes on");
    assert_eq!(world.count(long, doc! { "status": -2 }).await?, 1, "the slot is not free");
    world.end().await
}

#[tokio::test]
async fn a_node_that_ends_leaves_its_slots_at_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHORT, 1).await?;
    let first = world.den_at_work("n1").await?;
    world.submit(queue, vec![doc! {}]).await?;
    until_on(&world, queue, "n1", 1).await?;
    assert_eq!(numbers(&world.store(), queue).await?, [0], "nobody else wants it");
    first.end_with(Signal::SIGTERM).await?;
    assert_eq!(numbers(&world.store(), queue).await?, Vec::<u64>::new());
    world.end().await
}

#[tokio::test]
async fn slots_that_a_node_does_not_use_are_others_soon() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHORT, 2).await?;
    let _first = world.den_at_work("n1").await?;
    world.submit(queue, vec![doc! {}; 2]).await?;
    eventually("both to end", || async {
        Ok((world.count(queue, doc! { "status": 1 }).await? == 2).then_some(()))
    })
    .await?;
    let _second = world.den_at_work("n2").await?;
    let nodes = world.database().collection::<Document>("nodes");
    nodes.update_one(doc! { "node": "n1" }, doc! { "$set": { "maxthreads": 0 } }).await?;
    world.submit(queue, vec![doc! {}; 2]).await?;
    let asked = Instant::now();
    until_on(&world, queue, "n2", 1).await?;
    assert!(asked.elapsed() < SILENT, "they were not taken back, but given");
    world.end().await
}

#[tokio::test]
async fn a_node_that_stood_still_holds_nothing_any_more() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SHORT, 1).await?;
    let first = world.den_at_work("n1").await?;
    world.submit(queue, vec![doc! {}]).await?;
    until_on(&world, queue, "n1", 1).await?;
    let _second = world.den_at_work("n2").await?;
    first.signal(Signal::SIGSTOP)?;
    world.submit(queue, vec![doc! {}; 30]).await?;
    let resumed = async {
        until_on(&world, queue, "n2", 1).await?;
        first.signal(Signal::SIGCONT)
    };
    futures::try_join!(resumed, watch(&world, queue, 1, SILENT + Duration::from_secs(6)))?;
    world.until_all_ended(queue).await?;
    assert!(first.log()?.contains("slots that this node held are others' now"), "{}", first.log()?);
    world.end().await
}
