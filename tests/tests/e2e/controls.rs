//! What operators and clients can do to tasks, queues and nodes through the REST API.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::store::collections::TaskSource;
use disbatch_core::task::{Once, SubmitError, TaskOptions};
use disbatch_tests::{Dci, Script, World, always, eventually};
use futures::future::try_join_all;
use serde_json::{Value, json};

const DEMO: &str = "Disbatch::Plugin::Demo";

/// Prints the number of its attempt, and fails in the first.
const SECOND_TIME: Script<'_> = Script {
    name: "SecondTime",
    text: "#!/bin/sh\necho \"attempt $DISBATCH_ATTEMPT\"\n[ \"$DISBATCH_ATTEMPT\" -ge 2 ]\n",
};

/// A database with its indexes, and a DCI.
async fn served() -> anyhow::Result<(World, Dci)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    Ok((world, dci))
}

/// The ids in the answer to a submission.
fn ids(answer: &Value) -> anyhow::Result<Vec<TaskId>> {
    let inserted = answer["MongoDB::InsertManyResult"]["inserted"].as_array().context(answer.to_string())?;
    inserted.iter().map(|item| Ok(item["_id"]["$oid"].as_str().context("no id")?.parse()?)).collect()
}

async fn submit(dci: &Dci, queue: QueueId, options: Value) -> anyhow::Result<TaskId> {
    let mut body = json!({ "queue": queue.to_string(), "params": [{ "commands": "a", "noreport": 1 }] });
    for (name, value) in options.as_object().context("no object")? {
        body[name] = value.clone();
    }
    ids(&dci.posted("/tasks", &body).await?)?.pop().context("no task")
}

async fn summary(dci: &Dci, task: TaskId) -> anyhow::Result<String> {
    let explained = dci.get(&format!("/tasks/{task}/explain")).await?;
    Ok(explained["summary"].as_str().context("no summary")?.to_owned())
}

#[tokio::test]
async fn a_queued_task_is_cancelled_and_an_ended_one_is_not() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "threads": 1 }).await?;
    let task = submit(&dci, queue, json!({})).await?;
    let path = format!("/tasks/{task}/cancel");
    let (status, _) = dci.post(&path, &json!({ "because": "x" })).await?;
    assert_eq!(status, 400);
    let answer = dci.posted(&path, &json!({ "reason": "a mistake" })).await?;
    assert_eq!(answer, json!({ "id": task.to_string(), "status": -5, "outcome": "cancelled" }));
    let stored = world.task(task).await?;
    assert_eq!(stored.get_document("cancel")?.get_str("by")?, "the REST API from 127.0.0.1");
    assert!(summary(&dci, task).await?.contains(": cancelled by the REST API from 127.0.0.1: a mistake."));
    let (status, answer) = dci.post(&path, &json!({})).await?;
    let expected = json!({ "error": "the task has ended: its status is -5 (cancelled)" });
    assert_eq!((status, answer), (409, expected));
    let (status, _) = dci.post("/tasks/000000000000000000000000/cancel", &json!({})).await?;
    assert_eq!(status, 404);
    world.end().await
}

#[tokio::test]
async fn a_task_that_is_retried_keeps_its_earlier_output() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.script_queue(SECOND_TIME, 1).await?;
    let task = submit(&dci, queue, json!({})).await?;
    let path = format!("/tasks/{task}/retry");
    assert_eq!(dci.post(&path, &json!({})).await?.0, 409, "it has not ended");
    let _den = world.den("n1")?;
    world.until_status(task, 2).await?;
    let answer = dci.posted(&path, &json!({ "reason": "fixed" })).await?;
    assert_eq!(answer, json!({ "id": task.to_string(), "status": -2, "attempt": 2 }));
    world.until_status(task, 1).await?;
    let now = dci.get(&format!("/tasks/{task}")).await?;
    assert_eq!((&now["stdout"], &now["attempt"]), (&json!("attempt 2\n"), &Value::Null));
    let details = dci.get(&format!("/tasks/{task}?.details=1")).await?;
    assert_eq!(details["attempt"], 2);
    let attempts = dci.get(&format!("/tasks/{task}/attempts")).await?;
    assert_eq!(attempts.as_array().map(Vec::len), Some(1), "{attempts}");
    let first = &attempts[0];
    assert_eq!((&first["attempt"], &first["status"]), (&json!(1), &json!(2)));
    assert_eq!((&first["stdout"], &first["node"]), (&json!("attempt 1\n"), &json!("n1")));
    world.end().await
}

#[tokio::test]
async fn a_delayed_task_waits_for_its_time() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "threads": 5 }).await?;
    let _den = world.den_at_work("n1").await?;
    let far = submit(&dci, queue, json!({ ".run_at": "2099-01-01T00:00:00Z" })).await?;
    let near = submit(&dci, queue, json!({ ".delay": 2 })).await?;
    let past = submit(&dci, queue, json!({ ".run_at": 1 })).await?;
    let ended = world.until_status(near, 1).await?;
    let waited =
        ended.get_datetime("mtime")?.timestamp_millis() - ended.get_datetime("run_at")?.timestamp_millis();
    assert!(waited >= 0, "it ended {waited} ms before its time");
    world.until_status(past, 1).await?;
    assert_eq!(world.status(far).await?, -7);
    let text = summary(&dci, far).await?;
    assert!(text.starts_with("The task is deferred until 2099-01-01 00:00:00 UTC (in "), "{text}");
    let cancelled = dci.posted(&format!("/tasks/{far}/cancel"), &json!({})).await?;
    assert_eq!(cancelled["outcome"], "cancelled");
    world.end().await
}

#[tokio::test]
async fn of_twenty_tasks_with_one_key_one_is_created() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "threads": 1 }).await?;
    let body = json!({ "queue": queue.to_string(), "params": [{ "commands": "a" }], ".unique": "nightly" });
    let answers = try_join_all((0..20).map(|_| dci.post("/tasks", &body))).await?;
    let created: Vec<_> = answers.iter().filter(|(status, _)| *status == 200).collect();
    assert_eq!(created.len(), 1, "{answers:?}");
    let winner = ids(&created[0].1)?[0];
    for (status, answer) in answers.iter().filter(|(status, _)| *status != 200) {
        assert_eq!((*status, &answer["task"]), (409, &json!(winner.to_string())), "{answer}");
    }
    assert_eq!(world.count(queue, doc! {}).await?, 1);

    // The key is free again when the task has ended.
    dci.posted(&format!("/tasks/{winner}/cancel"), &json!({})).await?;
    let next = ids(&dci.posted("/tasks", &body).await?)?[0];
    let (status, answer) = dci.post(&format!("/tasks/{winner}/retry"), &json!({})).await?;
    assert_eq!((status, &answer["task"]), (409, &json!(next.to_string())), "{answer}");
    let several = json!({ "queue": queue.to_string(), "params": [{ "a": 1 }, { "a": 2 }], ".unique": "k" });
    assert_eq!(dci.post("/tasks", &several).await?.0, 400);
    // No index takes part.
    world.tasks().drop_indexes().await?;
    let (status, answer) = dci.post("/tasks", &body).await?;
    assert_eq!((status, &answer["task"]), (409, &json!(next.to_string())), "{answer}");
    world.end().await
}

#[tokio::test]
async fn a_repeated_submission_creates_its_tasks_once() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! {}).await?;
    let params: Vec<Value> = (0..50).map(|n| json!({ "n": n })).collect();
    let body = json!({ "queue": queue.to_string(), "params": params, ".idempotency_key": "order 66" });
    let answers = try_join_all((0..10).map(|_| dci.posted("/tasks", &body))).await?;
    let first = ids(&answers[0])?;
    for answer in &answers {
        assert_eq!(ids(answer)?, first);
    }
    assert_eq!(world.count(queue, doc! {}).await?, 50);
    let order: Vec<i32> = {
        let by_id = |id: TaskId| world.task(id);
        let tasks = try_join_all(first.iter().map(|id| by_id(*id))).await?;
        tasks
            .iter()
            .map(|task| Ok(task.get_document("params")?.get_i32("n")?))
            .collect::<anyhow::Result<_>>()?
    };
    assert_eq!(order, (0..50).collect::<Vec<_>>());
    let other = json!({ "queue": queue.to_string(), "params": [{ "n": 1 }], ".idempotency_key": "order 66" });
    assert_eq!(dci.post("/tasks", &other).await?.0, 409);

    // Done is done: tasks that are deleted are not created again, and a closed queue answers the same.
    world.tasks().delete_many(doc! { "queue": queue }).await?;
    world.update_queue(queue, doc! { "accepting": false }).await?;
    assert_eq!(ids(&dci.posted("/tasks", &body).await?)?, first);
    assert_eq!(world.count(queue, doc! {}).await?, 0);
    world.end().await
}

#[tokio::test]
async fn a_key_is_of_one_queue_and_tells_nothing_in_another() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let (one, other) = (world.queue(DEMO, doc! {}).await?, world.queue(DEMO, doc! {}).await?);
    let closed = world.queue(DEMO, doc! { "accepting": false }).await?;
    let body = |queue: QueueId| json!({ "queue": queue.to_string(), "params": [{ "n": 1 }], ".idempotency_key": "k" });
    let first = ids(&dci.posted("/tasks", &body(one)).await?)?;
    let second = ids(&dci.posted("/tasks", &body(other)).await?)?;
    assert_ne!(first, second);
    for (queue, known) in [(one, &first), (other, &second)] {
        assert_eq!(&ids(&dci.posted("/tasks", &body(queue)).await?)?, known);
        assert_eq!(world.count(queue, doc! {}).await?, 1);
    }
    let (status, answer) = dci.post("/tasks", &body(closed)).await?;
    assert_eq!(
        (status, answer["error"].as_str().is_some_and(|error| error.contains("accepts no tasks"))),
        (409, true)
    );
    world.end().await
}

/// Earlier releases had one set of keys for all queues.
#[tokio::test]
async fn a_note_of_an_earlier_release_holds_for_its_queue() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let (queue, other) = (world.queue(DEMO, doc! {}).await?, world.queue(DEMO, doc! {}).await?);
    let (store, options) = (world.store(), TaskOptions::default());
    let once = Once::new("k".to_owned(), "the request");
    let submit =
        async |queue: QueueId| store.submit_tasks_once(queue, vec![doc! { "n": 1 }], &options, &once).await;
    let first = submit(queue).await?.ids;
    let submissions = world.database().collection::<Document>("submissions");
    let mut note = submissions.find_one(doc! { "queue": queue }).await?.context("no note")?;
    submissions.delete_one(doc! { "queue": queue }).await?;
    note.insert("_id", "k");
    note.insert("state", "pending");
    submissions.insert_one(note).await?;
    world.tasks().delete_many(doc! { "queue": queue }).await?;

    assert_eq!(submit(queue).await?.ids, first, "it is completed");
    assert_eq!(world.count(queue, doc! {}).await?, 1);
    let again = submit(queue).await?;
    assert_eq!((again.ids, again.is_repetition), (first.clone(), true));
    assert!(store.has_submission(queue, &once).await? && !store.has_submission(other, &once).await?);
    let another = Once::new("k".to_owned(), "another request");
    assert!(!store.has_submission(queue, &another).await?, "only its key is the same");
    assert_ne!(submit(other).await?.ids, first);
    assert_eq!(submissions.count_documents(doc! {}).await?, 2);
    world.end().await
}

/// What a DCI leaves that is killed after it has noted the submission, and after each of its tasks.
#[tokio::test]
async fn a_half_done_submission_is_completed() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let (store, options) = (world.store(), TaskOptions::default());
    let params = || (0..3).map(|n| doc! { "n": n }).collect::<Vec<_>>();
    for inserted in 0..=3 {
        let queue = world.queue(DEMO, doc! {}).await?;
        let once = Once::new(format!("key {inserted}"), "the request");
        let whole = store.submit_tasks_once(queue, params(), &options, &once).await?.ids;
        let kept: Vec<ObjectId> = whole.iter().take(inserted).map(|id| id.0).collect();
        world.tasks().delete_many(doc! { "queue": queue, "_id": { "$nin": kept } }).await?;
        let submissions = world.database().collection::<Document>("submissions");
        submissions.update_one(doc! { "queue": queue }, doc! { "$set": { "state": "pending" } }).await?;

        assert_eq!(store.submit_tasks_once(queue, params(), &options, &once).await?.ids, whole);
        let stored: Vec<Bson> =
            world.tasks_of(queue).await?.iter().filter_map(|task| task.get("_id").cloned()).collect();
        assert_eq!(stored, whole.iter().map(|id| Bson::from(id.0)).collect::<Vec<_>>());
        let other = Once::new(format!("key {inserted}"), "another request");
        let refused = store.submit_tasks_once(queue, params(), &options, &other).await;
        assert!(matches!(refused, Err(SubmitError::AnotherRequest)), "{refused:?}");
    }
    world.end().await
}

#[tokio::test]
async fn a_half_done_submission_from_a_collection_is_completed_with_the_same_documents() -> anyhow::Result<()>
{
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue(DEMO, doc! {}).await?;
    let users = world.database().collection::<Document>("users");
    users.insert_many((0..5).map(|n| doc! { "_id": n, "n": n })).await?;
    let once = Once::new("users".to_owned(), "the request");
    let (store, options) = (world.store(), TaskOptions::default());
    let source = TaskSource::named("users")?;
    let params = |user: &Document| doc! { "n": user.get("n").cloned() };
    let submit = || {
        let from = (&source, doc! { "n": { "$lt": 10 } });
        store.submit_tasks_for_once(queue, from, &params, &options, &once)
    };
    let whole = submit().await?.ids;
    assert_eq!(whole.len(), 5);
    // As if it had been killed before the last three tasks; since then one user went and one came.
    world.tasks().delete_many(doc! { "queue": queue, "params.n": { "$gte": 2 } }).await?;
    let ids: Vec<ObjectId> = whole.iter().map(|id| id.0).collect();
    let pending = doc! { "state": "pending", "ids": ids, "sources": [0, 1, 2, 3, 4] };
    let submissions = world.database().collection::<Document>("submissions");
    submissions.update_one(doc! { "queue": queue }, doc! { "$set": pending }).await?;
    users.delete_one(doc! { "_id": 3 }).await?;
    users.insert_one(doc! { "_id": 5, "n": 5 }).await?;
    let expected: Vec<TaskId> = [0, 1, 2, 4].map(|n: usize| whole[n]).to_vec();
    assert_eq!(submit().await?.ids, expected);
    assert_eq!(submit().await?.ids, expected, "done");
    let numbers: HashSet<i32> = world
        .tasks_of(queue)
        .await?
        .iter()
        .filter_map(|task| task.get_document("params").ok()?.get_i32("n").ok())
        .collect();
    assert_eq!(numbers, HashSet::from([0, 1, 2, 4]));
    world.end().await
}

#[tokio::test]
async fn a_paused_queue_runs_nothing_and_a_closed_one_takes_nothing() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "threads": 2 }).await?;
    let path = format!("/queues/{queue}");
    // Before there is a DEN: one may act for a second under what it knew.
    dci.posted(&path, &json!({ "paused": true, "reason": "moving house" })).await?;
    let _den = world.den_at_work("n1").await?;
    let task = submit(&dci, queue, json!({})).await?;
    let waits = || async { Ok(world.status(task).await? == -2) };
    always("a paused queue waits", Duration::from_secs(2), waits).await?;
    assert_eq!(summary(&dci, task).await?, format!("The queue q{queue} is paused: moving house."));
    dci.posted(&path, &json!({ "accepting": false })).await?;
    let body = json!({ "queue": queue.to_string(), "params": [{ "a": 1 }] });
    let (status, answer) = dci.post("/tasks", &body).await?;
    let message = format!("queue q{queue} accepts no tasks: moving house");
    assert_eq!((status, answer), (409, json!({ "error": message })));
    let shown = dci.get(&format!("{path}?.details=1")).await?;
    assert_eq!((&shown["paused"], &shown["accepting"]), (&json!(true), &json!(false)));
    assert!(dci.get(&path).await?.get("paused").is_none());
    dci.posted(&path, &json!({ "paused": null, "accepting": null, "reason": null })).await?;
    world.until_status(task, 1).await?;
    submit(&dci, queue, json!({})).await?;
    let (status, answer) = dci.post(&path, &json!({ "on_orphan": "hope" })).await?;
    assert_eq!((status, answer), (400, json!({ "error": "on_orphan must be \"fail\" or \"requeue\"" })));
    world.end().await
}

#[tokio::test]
async fn a_draining_node_claims_nothing() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "threads": 1 }).await?;
    let _den = world.den_at_work("n1").await?;
    dci.posted("/nodes/n1", &json!({ "draining": true })).await?;
    assert_eq!(dci.get("/nodes/n1?.details=1").await?["state"], "draining");
    let nodes = world.database().collection::<Document>("nodes");
    eventually("its DEN to know", || async {
        let entry = nodes.find_one(doc! { "node": "n1", "state": "draining" }).await?;
        Ok(entry.map(drop))
    })
    .await?;
    assert!(dci.get("/nodes/n1").await?.get("draining").is_none());
    let task = submit(&dci, queue, json!({})).await?;
    let waits = || async { Ok(world.status(task).await? == -2) };
    always("a draining node waits", Duration::from_secs(2), waits).await?;
    let text = summary(&dci, task).await?;
    assert_eq!(text, "No node can claim it. n1: it is draining.");
    let (status, _) = dci.post("/nodes/n1", &json!({ "draining": "perhaps" })).await?;
    assert_eq!(status, 400);
    dci.posted("/nodes/n1", &json!({ "draining": false, "maxthreads": 3 })).await?;
    world.until_status(task, 1).await?;
    world.end().await
}

#[tokio::test]
async fn explanations_follow_what_is_in_the_database() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "sort": "fifo" }).await?;
    let first = submit(&dci, queue, json!({})).await?;
    let second = submit(&dci, queue, json!({})).await?;
    let text = summary(&dci, second).await?;
    assert_eq!(text, format!("The queue q{queue} has no threads set, so that none of its tasks run."));
    world.update_queue(queue, doc! { "threads": 1 }).await?;
    assert_eq!(summary(&dci, second).await?, "No DEN is alive, and none has been seen yet.");
    let nodes = world.database().collection::<Document>("nodes");
    nodes.insert_one(doc! { "node": "old", "timestamp": world.store().now() }).await?;
    assert_eq!(summary(&dci, second).await?, "1 task is ahead of it in its queue.");
    let text = summary(&dci, first).await?;
    ensure!(text.starts_with("Nothing keeps it from being claimed"), "{text}");
    world.set(first, doc! { "status": 0, "node": "old" }).await?;
    let text = summary(&dci, second).await?;
    assert_eq!(text, "The queue is full: 1 of 1 threads are in use, 1 on old (by another program).");
    let running = dci.get(&format!("/tasks/{first}/explain")).await?;
    assert_eq!(running["word"], "running");
    ensure!(
        running["summary"].as_str().unwrap_or_default().starts_with("It runs on old since "),
        "{running}"
    );
    let unknown = dci.request("GET".parse()?, "/tasks/000000000000000000000000/explain").send().await?;
    assert_eq!(unknown.status(), 404);
    world.end().await
}
