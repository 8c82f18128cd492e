//! What lasts too long, what does not come, and who has gone: told once, and what can be over when it is over.

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{DateTime, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::{Script, World, always, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Scene, WORKER};
use crate::versions::install;

const SECOND: i64 = 1_000;

/// So long at least a DEN tells before it tells of times that nobody comes for.
const SETTLES: Duration = Duration::from_secs(45);

/// Kinds of events, and to whom they have happened, in their order: a schedule, else a queue, else a node.
fn told(messages: &[Value]) -> Vec<(String, String)> {
    let events = messages.iter().filter_map(|message| message["events"].as_array()).flatten();
    let whose = |event: &Value| {
        ["schedule", "queue", "node"].into_iter().find_map(|name| event[name].as_str().map(str::to_owned))
    };
    let kind = |event: &Value| event["event"].as_str().unwrap_or_default().to_owned();
    events.map(|event| (kind(event), whose(event).unwrap_or_default())).collect()
}

impl Scene {
    /// Waits until this is told last, and gives the message. Before it, this was told and nothing else.
    async fn until_told(&self, expected: &[(&str, &str)]) -> anyhow::Result<Value> {
        let number = expected.len();
        let messages =
            self.until(&format!("{expected:?}"), |messages| told(messages).len() >= number).await?;
        let expected: Vec<(String, String)> =
            expected.iter().map(|(kind, whose)| ((*kind).to_owned(), (*whose).to_owned())).collect();
        ensure!(told(&messages) == expected, "{expected:?} was to be told: {messages:#?}");
        let last = messages.last().cloned().context("nothing was told")?;
        ensure!(last["count"] == 1, "it was told more often: {last:#}");
        Ok(last)
    }

    async fn submit(&self, queue: QueueId) -> anyhow::Result<TaskId> {
        Ok(self.world.submit(queue, vec![doc! { "do": "work" }]).await?[0])
    }
}

fn names_task(message: &Value, task: TaskId) -> bool {
    message["events"][0]["tasks"][0]["id"].as_str() == Some(&*task.to_string())
}

#[tokio::test]
async fn a_queue_that_does_not_move_is_told_once_and_that_it_moves_again() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let paused = |name: &str| doc! { "name": name, "threads": 1, "paused": true };
    let first = scene.world.queue(WORKER.name, paused("first")).await?;
    let second = scene.world.queue(WORKER.name, paused("second")).await?;
    scene.subscribe("slow", &json!({ "events": ["recovered"], "waits_longer": 1 })).await?;
    let waits = scene.submit(first).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let message = scene.until_told(&[("waits_long", "first")]).await?;
    assert!(names_task(&message, waits), "{message}");
    // That this one is told shows that it was looked for once more.
    scene.submit(second).await?;
    scene.until_told(&[("waits_long", "first"), ("waits_long", "second")]).await?;
    scene.world.update_queue(first, doc! { "paused": false }).await?;
    scene.world.until_status(waits, 1).await?;
    scene.until_told(&[("waits_long", "first"), ("waits_long", "second"), ("recovered", "first")]).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_task_that_runs_too_long_is_told_once() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let go = scene.world.path().join("go");
    let text = format!("#!/bin/sh\nread -r line\nwhile [ ! -e '{}' ]; do sleep 0.1; done\n", go.display());
    let queue = scene.world.script_queue(Script { name: "Stays", text: &text }, 2).await?;
    scene.world.update_queue(queue, doc! { "name": "long" }).await?;
    scene.subscribe("long", &json!({ "runs_longer": 1 })).await?;
    let first = scene.submit(queue).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let message = scene.until_told(&[("runs_long", "long")]).await?;
    assert!(names_task(&message, first), "{message}");
    let second = scene.submit(queue).await?;
    let message = scene.until_told(&[("runs_long", "long"), ("runs_long", "long")]).await?;
    assert!(names_task(&message, second), "{message}");
    std::fs::write(go, "")?;
    for task in scene.world.until_all_ended(queue).await? {
        assert_eq!(task.get_i32("status")?, 1);
    }
    scene.world.end().await
}

#[tokio::test]
async fn a_node_that_dies_is_told_and_one_that_leaves_is_not() -> anyhow::Result<()> {
    let scene = Scene::with(&json!({ "lease": 4 }), vec![]).await?;
    scene.subscribe("nodes", &json!({ "events": ["node_dead"] })).await?;
    let _witness = scene.world.den_at_work("n1").await?;
    let leases = scene.world.database().collection::<Document>("leases");
    let held = doc! { "_id": "notifier", "instance": { "$regex": "^n1:" } };
    eventually("n1 to tell", || async { Ok(leases.find_one(held.clone()).await?) }).await?;
    let mut others = Vec::new();
    for node in ["n2", "n3", "n4"] {
        others.push(scene.world.den_at_work(node).await?);
    }
    let [dies, leaves, dies_later] = <[_; 3]>::try_from(others).ok().context("three")?;
    dies.end_with(Signal::SIGKILL).await?;
    scene.until_told(&[("node_dead", "n2")]).await?;
    assert!(leaves.end_with(Signal::SIGTERM).await?.success());
    dies_later.end_with(Signal::SIGKILL).await?;
    scene.until_told(&[("node_dead", "n2"), ("node_dead", "n4")]).await?;
    scene.world.end().await
}

/// Has the queue try its version 2, and waits until that is taken back.
async fn until_returned(scene: &Scene, queue: QueueId) -> anyhow::Result<()> {
    scene
        .dci
        .posted("/queues/mail", &json!({ "threads": 0, "canary": { "version": "2", "share": 0.5 } }))
        .await?;
    scene.world.submit(queue, vec![doc! {}; 120]).await?;
    scene.dci.posted("/queues/mail", &json!({ "threads": 4 })).await?;
    eventually("the canary to return", || async {
        let queue = scene.dci.get("/queues/mail?.details=1").await?;
        Ok((queue["canary"].is_null() && queue["canary_returned"].is_object()).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_canary_that_is_taken_back_is_told_once() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    for (version, text) in [("1", "#!/bin/sh\n"), ("2", "#!/bin/sh\nexit 3\n")] {
        install(&scene.world.plugins(), version, (text, json!({})))?;
    }
    let queue = scene.world.queue("Mail", doc! { "name": "mail", "version": "1" }).await?;
    scene.queue("letters").await?;
    let canaries = |queue: &str| json!({ "events": ["canary_returned"], "queues": [queue] });
    scene.subscribe("canaries", &canaries("mail")).await?;
    scene.subscribe("others", &canaries("letters")).await?;
    let _den = scene.world.den_at_work("n1").await?;
    until_returned(&scene, queue).await?;
    let message = scene.until_told(&[("canary_returned", "mail")]).await?;
    assert_eq!(message["subscription"], "canaries", "{message}");
    let returned = scene.dci.get("/queues/mail?.details=1").await?["canary_returned"].clone();
    let event = &message["events"][0];
    let detail = format!(
        "version 2: {} of {} attempts failed, and 0 of {} others",
        returned["failed"], returned["of"], returned["others_of"]
    );
    assert_eq!(event["detail"], json!(detail), "{message}");
    // That the next one is told shows that this one was told once.
    until_returned(&scene, queue).await?;
    scene.until_told(&[("canary_returned", "mail"), ("canary_returned", "mail")]).await?;
    scene.world.end().await
}

/// Makes a schedule that has a time now and one each half a minute, and whose next time is so long past.
async fn schedule(scene: &Scene, name: &str, seconds_ago: i64) -> anyhow::Result<()> {
    let settings = json!({
        "name": name, "queue": "imports", "cron": "@yearly", "params": { "do": "work" }, "catch_up": 0,
    });
    let (status, answer) = scene.dci.post("/schedules", &settings).await?;
    ensure!(status == 201, "{status} {answer}");
    let now = scene.world.store().server_time().await?.timestamp_millis() / SECOND;
    let mut seconds = [now.rem_euclid(60), (now + 30).rem_euclid(60)];
    seconds.sort_unstable();
    let cron = format!("{},{} * * * * *", seconds[0], seconds[1]);
    let first = DateTime::from_millis((now - seconds_ago) * SECOND);
    missed(&scene.world, name, doc! { "cron": cron, "next": first, "next_for": first }).await
}

async fn missed(world: &World, schedule: &str, fields: Document) -> anyhow::Result<()> {
    let schedules = world.database().collection::<Document>("schedules");
    let changed = schedules.update_one(doc! { "name": schedule }, doc! { "$set": fields }).await?;
    ensure!(changed.matched_count == 1, "there is no schedule {schedule}");
    Ok(())
}

#[tokio::test]
async fn a_time_of_a_schedule_that_came_too_late_is_told_once() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.queue("imports").await?;
    scene.subscribe("clock", &json!({ "events": ["schedule_missed"] })).await?;
    // Of its last two times one makes a task, and the other one is passed over.
    schedule(&scene, "nightly", 30).await?;
    let _den = scene.world.den_at_work("n1").await?;
    scene.until_told(&[("schedule_missed", "nightly")]).await?;
    schedule(&scene, "hourly", 30).await?;
    scene.until_told(&[("schedule_missed", "nightly"), ("schedule_missed", "hourly")]).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_time_of_a_schedule_that_nobody_comes_for_is_told_once_also_if_somebody_comes_late()
-> anyhow::Result<()> {
    let scene = Scene::with(&json!({ "schedules": false }), vec![]).await?;
    let world = &scene.world;
    scene.queue("imports").await?;
    scene.subscribe("clock", &json!({ "events": ["schedule_missed"] })).await?;
    schedule(&scene, "nightly", 120).await?;
    let _den = world.den_at_work("n1").await?;
    always("somebody may still come for it", SETTLES, || async { Ok(scene.hook.received().is_empty()) })
        .await?;
    scene.until_told(&[("schedule_missed", "nightly")]).await?;
    world.configure(json!({ "notifications": { "allow": ["127.0.0.1"] } }))?;
    let _late = world.den_at_work("n2").await?;
    let schedules = world.database().collection::<Document>("schedules");
    let made_up = doc! { "name": "nightly", "missed": { "$type": "object" } };
    eventually("the late one to go on", || async { Ok(schedules.find_one(made_up.clone()).await?) }).await?;
    schedule(&scene, "hourly", 30).await?;
    scene.until_told(&[("schedule_missed", "nightly"), ("schedule_missed", "hourly")]).await?;
    scene.world.end().await
}
