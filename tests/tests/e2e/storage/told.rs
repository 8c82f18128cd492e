//! What plugins are told of earlier runs, and of whose task it is.

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::{Script, World};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{prints, text};

/// Prints what it is told of earlier runs, and counts its runs.
const COUNTS: Script<'_> = Script {
    name: "Counts",
    text: r#"#!/usr/bin/env python3
import json, os, sys
task = json.load(sys.stdin)
told = ["JOB_ID", "RUN_ID", "JOB_STORAGE", "LAST_SUCCESS_START", "LAST_SUCCESS_FINISH"]
print(json.dumps({name: os.environ[name] for name in told} | {"storage": task.get("storage")}))
storage = json.loads(os.environ["JOB_STORAGE"] or '{"runs": 0}')
storage["runs"] += 1
print("[saveJobStorage] " + json.dumps(storage))
sys.exit(task["params"].get("exit", 0))
"#,
};

#[tokio::test]
async fn the_next_attempt_gets_what_the_one_before_has_saved() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho \"[$JOB_STORAGE]\"\necho \"[saveJobStorage] $DISBATCH_ATTEMPT\"\n\
        [ \"$DISBATCH_ATTEMPT\" -ge 3 ]\n";
    let queue = world.script_queue(Script { name: "Third", text }, 1).await?;
    let quick = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    world.update_queue(queue, doc! { "max_attempts": 2, "backoff": quick }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let task = world.until_status(ids[0], 2).await?;
    assert_eq!((self::text(&task, "stdout"), task.get_i32("storage")?), ("[1]\n[saveJobStorage] 2\n", 2));
    world.store().retry_task(ids[0], "again").await?;
    let task = world.until_status(ids[0], 1).await?;
    assert_eq!((self::text(&task, "stdout"), task.get_i32("storage")?), ("[2]\n[saveJobStorage] 3\n", 3));
    world.end().await
}

/// A schedule that does not fire by itself.
async fn schedule(world: &World, queue: QueueId) -> anyhow::Result<ObjectId> {
    let id = ObjectId::new();
    let document = doc! {
        "_id": id, "name": "nightly", "queue": queue, "params": { "a": 1 }, "cron": "0 0 1 1 *", "zone": "UTC",
        "paused": true, "rev": 1_i64,
    };
    world.database().collection::<Document>("schedules").insert_one(document).await?;
    Ok(id)
}

/// A task that a schedule has made.
async fn fired(
    world: &World,
    queue: QueueId,
    (schedule, hour): (ObjectId, i64),
    params: Document,
) -> anyhow::Result<TaskId> {
    let id = ObjectId::new();
    let now = world.store().now();
    let task = doc! {
        "_id": id, "queue": queue, "status": -2, "node": Bson::Null, "params": params, "stdout": Bson::Null,
        "stderr": Bson::Null, "ctime": now, "mtime": now, "schedule": schedule, "unsettled": true,
        "scheduled_for": DateTime::from_millis(1_795_163_067_000 + hour * 3_600_000),
    };
    world.tasks().insert_one(task).await?;
    Ok(TaskId(id))
}

fn told(task: &Document) -> anyhow::Result<BTreeMap<String, Value>> {
    Ok(serde_json::from_str(text(task, "stdout").lines().next().unwrap_or_default())?)
}

#[tokio::test]
async fn each_run_of_a_schedule_is_told_what_the_one_before_has_left() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(COUNTS, 1).await?;
    let schedule = schedule(&world, queue).await?;
    let den = world.den("n1")?;
    let first = fired(&world, queue, (schedule, 0), doc! {}).await?;
    let ended = world.until_status(first, 1).await?;
    let expected: BTreeMap<String, Value> = [
        ("JOB_ID", json!(schedule.to_hex())),
        ("RUN_ID", json!(first.to_string())),
        ("JOB_STORAGE", json!("")),
        ("LAST_SUCCESS_START", json!("")),
        ("LAST_SUCCESS_FINISH", json!("")),
        ("storage", json!(null)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    assert_eq!(told(&ended)?, expected);
    let second = fired(&world, queue, (schedule, 1), doc! { "exit": 1 }).await?;
    let second = told(&world.until_status(second, 2).await?)?;
    let time =
        |field: &str| ended.get_datetime(field).ok().and_then(|time| time.try_to_rfc3339_string().ok());
    assert_eq!(second["JOB_STORAGE"], json!(r#"{"runs":1}"#));
    assert_eq!(second["storage"], json!({ "runs": 1 }));
    assert_eq!(second["LAST_SUCCESS_START"].as_str(), time("started").as_deref());
    assert_eq!(second["LAST_SUCCESS_FINISH"].as_str(), time("mtime").as_deref());
    // The second one failed, and has saved something all the same. By hand, the runner asks the schedule itself.
    let third = fired(&world, queue, (schedule, 2), doc! {}).await?;
    let third = told(&world.until_status(third, 1).await?)?;
    assert_eq!(third["JOB_STORAGE"], json!(r#"{"runs":2}"#));
    assert_eq!(third["LAST_SUCCESS_START"], second["LAST_SUCCESS_START"]);
    den.end_with(Signal::SIGTERM).await?;
    let fourth = fired(&world, queue, (schedule, 3), doc! {}).await?;
    world.set(fourth, doc! { "status": -1, "node": "n2" }).await?;
    let run = world.dtr(&fourth.to_string(), &["--node", "n2", "--quiet"]).await?;
    assert_eq!(run.code()?, 0, "{}", run.stderr);
    assert_eq!(told(&world.task(fourth).await?)?["JOB_STORAGE"], json!(r#"{"runs":3}"#));
    world.end().await
}

#[tokio::test]
async fn a_task_whose_schedule_cannot_be_understood_is_not_begun_and_one_whose_is_gone_runs()
-> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(COUNTS, 1).await?;
    let odd = ObjectId::new();
    let schedules = world.database().collection::<Document>("schedules");
    schedules.insert_one(doc! { "_id": odd, "name": "odd", "queue": "no id", "cron": 7 }).await?;
    let _den = world.den("n1")?;
    let unread = fired(&world, queue, (odd, 0), doc! {}).await?;
    let task = world.until_status(unread, 2).await?;
    assert_eq!(text(&task, "stdout"), "Unable to start");
    assert!(text(&task, "stderr").starts_with("cannot read the schedule of the task: "), "{task}");
    let gone = ObjectId::new();
    let without = fired(&world, queue, (gone, 0), doc! {}).await?;
    let without = told(&world.until_status(without, 1).await?)?;
    assert_eq!((&without["JOB_ID"], &without["JOB_STORAGE"]), (&json!(gone.to_hex()), &json!("")));
    world.end().await
}

#[tokio::test]
async fn a_task_has_the_tenant_of_its_own_or_of_its_queue() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = prints("TENANT_ID JOB_ID");
    let queue = world.script_queue(Script { name: "Tenant", text: &text }, 0).await?;
    world.update_queue(queue, doc! { "tenant": "acme" }).await?;
    let ids = world.submit(queue, vec![doc! {}; 2]).await?;
    world.set(ids[1], doc! { "tenant": "other" }).await?;
    world.update_queue(queue, doc! { "threads": 1 }).await?;
    let _den = world.den("n1")?;
    for (id, tenant) in ids.iter().zip(["acme", "other"]) {
        let task = world.until_status(*id, 1).await?;
        assert_eq!(self::text(&task, "stdout"), format!("TENANT_ID=[{tenant}]\nJOB_ID=[{id}]\n"));
    }
    world.end().await
}
