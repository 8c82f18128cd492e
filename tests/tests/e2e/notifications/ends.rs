//! Which ends of tasks are failures.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::QueueId;
use disbatch_core::notifications::Followed;
use disbatch_core::observe::FeedFilter;
use disbatch_core::shadow::place_before;
use disbatch_tests::{Script, World, eventually};
use serde_json::json;
use tokio::sync::Mutex;

use super::{Scene, WORKER, count_of, soon, tasks_of};

/// Works until it is ended.
const STAYS: Script<'_> = Script { name: "Stays", text: "#!/bin/sh\nexec sleep 600\n" };

/// Ends with a status of its own.
const OWN: Script<'_> =
    Script { name: "Own", text: "#!/bin/sh\nread -r line\necho '{\"status\": 7}' >&3\nexit 0\n" };

async fn queue(world: &World, plugin: &str, name: &str) -> anyhow::Result<QueueId> {
    world.queue(plugin, doc! { "name": name, "threads": 2 }).await
}

#[tokio::test]
async fn a_failure_is_an_end_that_nobody_wanted() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    for script in [STAYS, OWN] {
        script.install(&world.plugins())?;
    }
    scene.subscribe("each", &json!({ "events": ["failed"] })).await?;
    let slow = queue(world, STAYS.name, "slow").await?;
    let cancelled = queue(world, STAYS.name, "cancelled").await?;
    let (own, again) = (queue(world, OWN.name, "own").await?, queue(world, WORKER.name, "again").await?);
    world.update_queue(slow, doc! { "timeout": 1 }).await?;
    world.update_queue(cancelled, doc! { "threads": 1 }).await?;
    world.update_queue(again, doc! { "max_attempts": 3, "backoff": soon() }).await?;
    let _den = world.den_at_work("n1").await?;

    let takes_too_long = world.submit(slow, vec![doc! {}]).await?[0];
    world.until_status(takes_too_long, -3).await?;
    let odd = world.submit(own, vec![doc! {}]).await?[0];
    world.until_status(odd, 7).await?;
    let runs = world.submit(cancelled, vec![doc! {}]).await?[0];
    world.until_status(runs, 0).await?;
    let waits = world.submit(cancelled, vec![doc! {}]).await?[0];
    for (task, status) in [(waits, -5), (runs, -3)] {
        scene.dci.posted(&format!("/tasks/{task}/cancel"), &json!({})).await?;
        world.until_status(task, status).await?;
    }
    let failed = scene.run(again, "fail", 1).await?[0];
    assert_eq!(world.store().list_attempts(failed).await?.len(), 2, "it was tried three times");

    let messages = scene.until_last().await?;
    for (queue, number) in [("slow", 1), ("own", 1), ("cancelled", 0), ("again", 1)] {
        assert_eq!(count_of(&messages, "failed", queue), number, "{queue}");
    }
    assert!(tasks_of(&messages, "failed", "slow").contains(&takes_too_long.to_string()));
    scene.world.end().await
}

#[tokio::test]
async fn of_tagged_tasks_those_are_told_that_are_asked_for() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let imports = scene.queue("imports").await?;
    scene.subscribe("seven", &json!({ "events": ["failed"], "tags": ["customer=7"] })).await?;
    let _den = scene.world.den_at_work("n1").await?;
    for tag in ["customer=8", "customer=7"] {
        let task = json!({ "queue": imports.to_string(), "params": [{ "do": "fail" }], ".tags": [tag] });
        scene.dci.posted("/tasks", &task).await?;
        scene.world.until_all_ended(imports).await?;
    }
    let messages = scene.until_events("failed", 1).await?;
    assert_eq!(count_of(&messages, "failed", "imports"), 1, "{messages:?}");
    for told in tasks_of(&messages, "failed", "imports") {
        let task = scene.world.task(told.parse()?).await?;
        assert_eq!(task.get_array("tags")?, &[Bson::from("customer=7")]);
    }
    scene.world.end().await
}

#[tokio::test]
async fn what_the_inbox_refuses_has_failed() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.queue("imports").await?;
    scene.subscribe("each", &json!({ "events": ["failed"] })).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let refused = ObjectId::new();
    let secret = doc! {
        "_id": refused, "v": 1, "queue": "imports", "params": {}, "options": { "secure_params": { "password": "horse" } },
    };
    scene.world.database().collection::<Document>("inbox").insert_one(secret).await?;
    let messages = scene.until_events("failed", 1).await?;
    assert!(tasks_of(&messages, "failed", "imports").contains(&refused.to_hex()), "{messages:?}");
    scene.world.end().await
}

/// As `mongorestore --drop` does it.
#[tokio::test]
async fn what_comes_after_all_tasks_were_dropped_is_followed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let queue = queue(&world, WORKER.name, "imports").await?;
    world.submit(queue, vec![doc! {}]).await?;
    let since = place_before(store.server_time().await?, Duration::ZERO);
    let before = store.follow_ends(since).await?;
    let feed = Mutex::new(store.feed(&FeedFilter::default(), None).await?);
    world.tasks().drop().await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.set(task, doc! { "status": 2 }).await?;
    // The second one meets the drop as soon as it begins, as after a restart.
    for follower in [before, store.follow_ends(since).await?] {
        let follower = Mutex::new(follower);
        eventually("the end to be followed", || async {
            let ends = follower.lock().await.followed(10).await?;
            Ok(ends.iter().filter_map(Followed::ended).find(|ended| *ended == task))
        })
        .await?;
    }
    eventually("the feed to have the task", || async {
        let change = feed.lock().await.next_change().await?;
        Ok(change.filter(|change| change.task == task))
    })
    .await?;
    world.end().await
}
