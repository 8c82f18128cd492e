//! Limits of tenants: exactly as much as there may be gets through, however many ask at once.

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::QueueId;
use disbatch_core::task::{SubmitError, TaskOptions};
use disbatch_tests::{Dci, World};
use futures::future::{join_all, try_join_all};
use reqwest::Method;
use serde_json::{Value, json};

const DEMO: &str = "Disbatch::Plugin::Demo";

/// A database with its indexes, a DCI, and a queue of the tenant acme.
async fn served() -> anyhow::Result<(World, Dci, QueueId)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let queue = world.queue(DEMO, doc! { "tenant": "acme" }).await?;
    Ok((world, dci, queue))
}

fn tasks(queue: QueueId, number: usize) -> Value {
    json!({ "queue": queue.to_string(), "params": vec![json!({ "commands": "a" }); number] })
}

async fn account(world: &World) -> anyhow::Result<Document> {
    let tenants = world.database().collection::<Document>("tenants");
    tenants.find_one(doc! { "_id": "acme" }).await?.context("there is no such tenant")
}

/// The tenant is to have only these open reservations.
async fn reserve(world: &World, number: i64, at: DateTime) -> anyhow::Result<()> {
    let open = doc! { "id": ObjectId::new(), "of": "max_queued", "n": number, "at": at };
    let tenants = world.database().collection::<Document>("tenants");
    tenants.update_one(doc! { "_id": "acme" }, doc! { "$set": { "open": [open] } }).await?;
    Ok(())
}

fn minutes_ago(world: &World, minutes: i64) -> DateTime {
    DateTime::from_millis(world.store().now().timestamp_millis() - minutes * 60_000)
}

#[tokio::test]
async fn of_twenty_submissions_at_once_those_get_through_that_fit() -> anyhow::Result<()> {
    let (world, dci, queue) = served().await?;
    let limits = dci.posted("/tenants/acme", &json!({ "max_queued": 7 })).await?;
    assert_eq!((&limits["max_queued"], &limits["waiting"]), (&json!(7), &json!(0)));
    let one = tasks(queue, 1);
    let answers = try_join_all((0..20).map(|_| dci.post("/tasks", &one))).await?;
    let refused: Vec<_> = answers.iter().filter(|(status, _)| *status != 200).collect();
    assert_eq!(refused.len(), 13, "{answers:?}");
    for (status, answer) in refused {
        assert_eq!((*status, &answer["limit"], &answer["most"]), (429, &json!("max_queued"), &json!(7)));
    }
    assert_eq!(world.count(queue, doc! { "tenant": "acme" }).await?, 7);
    assert!(account(&world).await?.get_array("open")?.is_empty(), "nothing is reserved any more");

    // There is room for as many as go away, and a submission gets through as a whole or not at all.
    for task in world.tasks_of(queue).await?.iter().take(2) {
        let id = task.get_object_id("_id")?;
        dci.posted(&format!("/tasks/{id}/cancel"), &json!({})).await?;
    }
    assert_eq!(dci.post("/tasks", &tasks(queue, 3)).await?.0, 429);
    dci.posted("/tasks", &tasks(queue, 2)).await?;
    assert_eq!(dci.post("/tasks", &one).await?.0, 429);
    // Other tenants, and tasks of nobody, are not concerned.
    let others = world.queue(DEMO, doc! { "tenant": "other" }).await?;
    dci.posted("/tasks", &tasks(others, 50)).await?;
    let usage = dci.get("/tenants/acme").await?;
    assert_eq!((&usage["waiting"], &usage["queues"], &usage["running"]), (&json!(7), &json!(1), &json!(0)));
    let gone = dci.request(Method::DELETE, "/tenants/acme").send().await?;
    assert_eq!(gone.status(), 200);
    dci.posted("/tasks", &tasks(queue, 20)).await?;
    world.end().await
}

#[tokio::test]
async fn submissions_of_many_processes_fill_a_limit_to_the_last_place() -> anyhow::Result<()> {
    let (world, dci, queue) = served().await?;
    dci.posted("/tenants/acme", &json!({ "max_queued": 31 })).await?;
    let submit = async |number: usize| {
        let params = vec![doc! { "a": 1 }; number];
        world.store().submit_tasks(queue, params, &TaskOptions::default()).await
    };
    let outcomes = join_all((0..20).map(|_| submit(3))).await;
    let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(made, 10, "{outcomes:?}");
    let is_refusal = |outcome: &&Result<_, SubmitError>| matches!(outcome, Err(SubmitError::OverQuota(_)));
    assert_eq!(outcomes.iter().filter(is_refusal).count(), 10);
    submit(1).await?;
    ensure!(submit(1).await.is_err(), "the limit is reached");
    assert_eq!(world.count(queue, doc! {}).await?, 31);
    let tenants: Vec<Option<Bson>> =
        world.tasks_of(queue).await?.iter().map(|task| task.get("tenant").cloned()).collect();
    assert!(tenants.iter().all(|tenant| *tenant == Some("acme".into())), "whoever submits them");
    world.end().await
}

#[tokio::test]
async fn what_a_dead_process_has_reserved_counts_until_it_runs_out() -> anyhow::Result<()> {
    let (world, dci, queue) = served().await?;
    dci.posted("/tenants/acme", &json!({ "max_queued": 6 })).await?;
    reserve(&world, 5, minutes_ago(&world, 9)).await?;
    assert_eq!(dci.post("/tasks", &tasks(queue, 2)).await?.0, 429);
    reserve(&world, 5, minutes_ago(&world, 11)).await?;
    dci.posted("/tasks", &tasks(queue, 2)).await?;
    assert_eq!(account(&world).await?.get_array("open")?.len(), 0);
    world.end().await
}

#[tokio::test]
async fn an_array_that_is_noted_and_not_there_takes_its_room_too() -> anyhow::Result<()> {
    let (world, dci, queue) = served().await?;
    dci.posted("/tenants/acme", &json!({ "max_per_day": 20 })).await?;
    let mut wanted = json!({ "queue": queue.to_string(), "params": { "commands": "a" } });
    wanted[".array"] = json!("0-2");
    wanted[".idempotency_key"] = json!("nightly");
    let made = try_join_all((0..4).map(|_| dci.posted("/tasks", &wanted))).await?;
    assert!(made.iter().all(|answer| answer["array"]["id"] == made[0]["array"]["id"]), "{made:?}");
    assert_eq!(dci.get("/tenants/acme").await?["submitted_today"], 3, "it counts once");
    dci.posted("/tenants/acme", &json!({ "max_per_day": 5 })).await?;
    // As if the process had died between the note and the array.
    world.database().collection::<Document>("arrays").delete_many(doc! {}).await?;
    world.tasks().delete_many(doc! {}).await?;
    let notes = world.database().collection::<Document>("submissions");
    notes.update_many(doc! {}, doc! { "$set": { "state": "pending" } }).await?;
    let (status, answer) = dci.post("/tasks", &wanted).await?;
    assert_eq!((status, &answer["limit"]), (429, &json!("max_per_day")), "{answer}");
    dci.posted("/tenants/acme", &json!({ "max_per_day": 6 })).await?;
    dci.posted("/tasks", &wanted).await?;
    assert_eq!(world.count(queue, doc! {}).await?, 3);
    world.end().await
}

#[tokio::test]
async fn what_was_submitted_today_does_not_become_less() -> anyhow::Result<()> {
    let (world, dci, queue) = served().await?;
    dci.posted("/tenants/acme", &json!({ "max_per_day": 20 })).await?;
    dci.posted("/tasks", &tasks(queue, 3)).await?;
    for task in world.tasks_of(queue).await? {
        dci.posted(&format!("/tasks/{}/cancel", task.get_object_id("_id")?), &json!({})).await?;
    }
    let (status, answer) = dci.post("/tasks", &tasks(queue, 18)).await?;
    assert_eq!((status, &answer["limit"]), (429, &json!("max_per_day")), "{answer}");
    // What is refused for another reason does not count, and what is repeated counts once.
    let mut unique = tasks(queue, 1);
    unique[".unique"] = json!("nightly");
    dci.posted("/tasks", &unique).await?;
    assert_eq!(dci.post("/tasks", &unique).await?.0, 409);
    let mut once = tasks(queue, 1);
    once[".idempotency_key"] = json!("order 66");
    let answers = try_join_all((0..5).map(|_| dci.posted("/tasks", &once))).await?;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(dci.get("/tenants/acme").await?["submitted_today"], 5);
    assert_eq!(dci.post("/tasks", &tasks(queue, 16)).await?.0, 429);
    dci.posted("/tasks", &tasks(queue, 15)).await?;
    assert_eq!(dci.post("/tasks", &tasks(queue, 1)).await?.0, 429);
    // Tomorrow is another day.
    let tenants = world.database().collection::<Document>("tenants");
    tenants.update_one(doc! { "_id": "acme" }, doc! { "$set": { "day": "2026-01-01" } }).await?;
    dci.posted("/tasks", &tasks(queue, 5)).await?;
    world.end().await
}

#[tokio::test]
async fn schedules_are_limited_too() -> anyhow::Result<()> {
    let (world, dci, queue) = served().await?;
    dci.posted("/tenants/acme", &json!({ "max_schedules": 2 })).await?;
    let new = |number: usize| {
        let name = format!("nightly {number}");
        json!({ "name": name, "queue": queue.to_string(), "cron": "@daily", "params": { "a": 1 } })
    };
    let bodies: Vec<Value> = (0..6).map(new).collect();
    let answers = try_join_all(bodies.iter().map(|body| dci.post("/schedules", body))).await?;
    let refused =
        answers.iter().filter(|(status, answer)| *status == 429 && answer["limit"] == "max_schedules");
    assert_eq!(refused.count(), 4, "{answers:?}");
    assert_eq!(dci.get("/tenants/acme").await?["schedules"], 2);
    world.end().await
}
