//! How many tasks a group has at once at most, and how fast they start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::model::{Queue, QueueId, whole_number};
use disbatch_core::store::Store;
use disbatch_core::task::Ahead;
use disbatch_tests::{PATIENCE, World, always, eventually};
use futures::TryStreamExt;
use mongodb::options::ReadConcern;
use serde_json::json;
use tokio::time::Instant;

use super::{Scene, groups, run, submit};
use crate::claims::claimant;
use crate::detour::Held;
use crate::locks::ENDLESS;

/// What claimers that work at the same time have started, in order.
#[derive(Default)]
struct Race {
    claimed: AtomicUsize,
    started: tokio::sync::Mutex<Vec<String>>,
}

/// Claims, starts and ends tasks in places of its own until so many were claimed, or there are none.
async fn work(
    store: Store,
    queue: Queue,
    (number, places): (u64, u64),
    (race, all): (Arc<Race>, usize),
) -> anyhow::Result<()> {
    let den = claimant(&format!("n{number}"));
    let places: Vec<u64> = (number * places..(number + 1) * places).collect();
    let mut ahead = Ahead::default();
    let deadline = Instant::now() + PATIENCE;
    while race.claimed.load(Ordering::Relaxed) < all {
        anyhow::ensure!(Instant::now() < deadline, "the tasks do not come to an end");
        let batch = store.claim_tasks(&queue, &den, &places, &mut ahead).await?;
        assert!(batch.taken.is_empty(), "a place of its own is taken: {:?}", batch.taken);
        race.claimed.fetch_add(batch.claims.len(), Ordering::Relaxed);
        race.started.lock().await.extend(groups(&batch.claims));
        run(&store, &batch.claims).await?;
    }
    Ok(())
}

/// Watches that no group has more than `most` tasks claimed or running. Returns the most that one had.
async fn watch(world: &World, queue: QueueId, most: usize) -> anyhow::Result<usize> {
    let taken = doc! { "queue": queue, "status": { "$in": [-1, 0] } };
    let mut seen = 0;
    while world.count(queue, doc! { "status": { "$lt": 1 } }).await? > 0 {
        let only = doc! { "group": 1, "group_slot": 1 };
        let found =
            world.tasks().find(taken.clone()).projection(only).read_concern(ReadConcern::snapshot()).await?;
        let found: Vec<Document> = found.try_collect().await?;
        let mut places: HashMap<&str, HashSet<Option<i64>>> = HashMap::new();
        for task in &found {
            let place = task.get("group_slot").and_then(whole_number);
            let is_new = places.entry(task.get_str("group")?).or_default().insert(place);
            assert!(is_new && place.is_some(), "{found:?}");
        }
        seen = seen.max(places.values().map(HashSet::len).max().unwrap_or(0));
        assert!(seen <= most, "{found:?}");
    }
    Ok(seen)
}

#[tokio::test]
async fn no_group_has_more_at_once_than_it_may_whoever_claims() -> anyhow::Result<()> {
    let scene = Scene::fair(doc! { "threads": 20, "group_threads": 2 }).await?;
    for group in ["a", "b", "c"] {
        scene.submit(group, None, 60).await?;
    }
    let (race, queue) = (Arc::new(Race::default()), scene.queue().await?);
    let worker =
        |number| tokio::spawn(work(scene.world.store(), queue.clone(), (number, 5), (race.clone(), 180)));
    let workers = [worker(0), worker(1), worker(2), worker(3)];
    assert_eq!(watch(&scene.world, scene.id, 2).await?, 2, "the limit is used");
    for worker in workers {
        worker.await??;
    }
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for group in race.started.lock().await.iter() {
        *counted.entry(group.clone()).or_default() += 1;
    }
    assert_eq!(counted, BTreeMap::from(["a", "b", "c"].map(|group| (group.to_owned(), 60))));
    assert_eq!(scene.world.count(scene.id, doc! { "group_slot": { "$exists": true } }).await?, 0);
    scene.world.end().await
}

#[tokio::test]
async fn a_place_of_a_group_is_given_once_and_looked_back_at() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! { "group_threads": 3 }).await?;
    scene.submit("a", None, 10).await?;
    let claims = scene.claim(9).await?;
    assert_eq!(claims.len(), 3);
    let fourth = scene.submit("a", None, 1).await?[0];
    let place = scene.world.task(claims[0].task).await?.get("group_slot").cloned();
    let twice = scene.world.set(fourth, doc! { "status": -1, "node": "n9", "group_slot": place }).await;
    assert!(twice.is_err(), "the index is what keeps it");
    scene.world.update_queue(scene.id, doc! { "group_threads": 1 }).await?;
    let looks = scene.store.look_at_queues(&[scene.id]).await?;
    assert_eq!((looks[&scene.id].above_limit("a"), looks[&scene.id].above_limit("b")), (2, 0));
    scene.store.unclaim_task(&claims[2], "a test").await?;
    let stored = scene.world.task(claims[2].task).await?;
    assert!(!stored.contains_key("group_slot"), "{stored}");
    scene.ahead.look_back(scene.id);
    assert!(scene.claim(5).await?.is_empty(), "two still run");
    scene.world.end().await
}

/// What a DEN knows of a queue is older than the limit that it gives claims back for.
#[tokio::test]
async fn what_a_lowered_limit_takes_back_is_not_claimed_over_and_over() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = world.script_queue(ENDLESS, 20).await?;
    world.update_queue(id, doc! { "policy": "fair", "group_threads": 3 }).await?;
    let way = Held::at(&world, "group_slot").await?;
    way.release();
    world.configure(json!({ "mongohost": way.uri }))?;
    let elsewhere = world.queue(ENDLESS.name, doc! { "threads": 1 }).await?;
    let _den = world.den_at_work("n1").await?;
    // So that no runner is ready, and all that may run of the group is claimed at once.
    let busy = world.submit(elsewhere, vec![doc! {}]).await?;
    world.until_status(busy[0], 0).await?;
    way.hold();
    submit(&world.store(), id, "a", (None, 10)).await?;
    way.reached().await?;
    world.update_queue(id, doc! { "group_threads": 1 }).await?;
    // A change holds for what is started a second later.
    always("the claim is on its way", Duration::from_millis(1_100), || async {
        Ok(world.count(id, doc! { "status": { "$gte": -1 } }).await? == 0)
    })
    .await?;
    way.release();
    eventually("one of the group to run", || async {
        let running = world.count(id, doc! { "status": 0 }).await?;
        Ok((running == 1 && world.count(id, doc! { "status": -1 }).await? == 0).then_some(()))
    })
    .await?;
    assert!(world.count(id, doc! { "status": -2, "attempt": 1 }).await? > 0, "nothing was given back");
    always("the DEN waits for room", Duration::from_secs(2), || async {
        Ok(world.count(id, doc! { "attempt": { "$gt": 2 } }).await? == 0)
    })
    .await?;
    assert_eq!(world.count(id, doc! { "status": 0 }).await?, 1);
    world.end().await
}

#[tokio::test]
async fn the_rate_of_a_group_lets_others_go_on() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! { "group_rate": { "n": 1, "per": 3600, "burst": 2 } }).await?;
    for group in ["a", "b"] {
        scene.submit(group, None, 5).await?;
    }
    let batch = scene.batch(8).await?;
    let mut had = groups(&batch.claims);
    had.sort_unstable();
    assert_eq!(had, ["a", "a", "b", "b"]);
    let next = batch.next.context("nothing is said of the next start")?;
    assert!(next > Duration::from_secs(1), "{next:?}");
    scene.submit("c", None, 1).await?;
    let (id, scene) = (scene.id, tokio::sync::Mutex::new(scene));
    let claimed = eventually("the new group to have its turn", || async {
        let mut scene = scene.lock().await;
        scene.ahead.look_back(id);
        let claims = scene.claim(3).await?;
        Ok((!claims.is_empty()).then(|| groups(&claims)))
    });
    assert_eq!(claimed.await?, ["c"]);
    scene.into_inner().world.end().await
}
