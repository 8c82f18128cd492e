//! What the Perl client does not have of looking for tasks and steering them, with a server.

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use serde_json::Value;

use crate::additions::Fixture;

const HOUR: i64 = 3_600_000;

/// Now, in milliseconds since 1970.
fn now() -> i64 {
    SystemClock.now().timestamp_millis()
}

async fn queue(fixture: &Fixture, name: &str) -> anyhow::Result<ObjectId> {
    let queues = fixture.database.database.collection::<Document>("queues");
    let queue = queues.find_one(doc! { "name": name }).await?.context("no queue")?;
    Ok(queue.get_object_id("_id")?)
}

/// The id of something that was made at a time.
fn id_of(at: DateTime) -> anyhow::Result<ObjectId> {
    let mut bytes = ObjectId::new().bytes();
    bytes[..4].copy_from_slice(&u32::try_from(at.timestamp_millis() / 1000)?.to_be_bytes());
    Ok(ObjectId::from_bytes(bytes))
}

/// A task that was made so many hours ago.
fn task(queue: ObjectId, status: i32, hours: i64, more: Document) -> anyhow::Result<Document> {
    let at = DateTime::from_millis(now() - hours * HOUR);
    let id = id_of(at)?;
    let mut task = doc! {
        "_id": id, "queue": queue, "status": status, "node": Bson::Null, "params": {},
        "stdout": Bson::Null, "stderr": Bson::Null, "ctime": at, "mtime": at,
    };
    task.extend(more);
    Ok(task)
}

async fn insert(fixture: &Fixture, task: Document) -> anyhow::Result<String> {
    let id = task.get_object_id("_id")?.to_hex();
    fixture.tasks().insert_one(task).await?;
    Ok(id)
}

#[tokio::test]
async fn failed_tasks_of_all_queues_are_found_by_words_and_times() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture
        .expect(&["create-queue", "mail", "Disbatch::Plugin::Demo", "--threads", "4"], 0, "Created")
        .await?;
    let (q, mail) = (queue(&fixture, "q").await?, queue(&fixture, "mail").await?);
    let queues = fixture.database.database.collection::<Document>("queues");
    ensure!(queues.count_documents(doc! { "name": "mail", "threads": 4 }).await? == 1, "no threads");
    let old = insert(&fixture, task(q, 2, 5, doc! { "params": { "to": "Ashley" } })?).await?;
    let perls = doc! { "mtime": now() / 1000, "node": "vm" };
    let new = insert(&fixture, task(mail, 2, 0, perls)?).await?;
    let good = insert(&fixture, task(mail, 1, 0, doc! { "node": "vm" })?).await?;
    for (arguments, found) in [
        (&["--status", "failed"][..], &[&new, &old][..]),
        (&["--status", "failed", "--since", "1h"], &[&new]),
        (&["--status", "2,succeeded", "--until", "1h"], &[&old]),
        (&["--queue", "mail"], &[&good, &new]),
        (&["--queue", &mail.to_hex(), "--status", "failed"], &[&new]),
        (&["--node", "vm"], &[&good, &new]),
        (&["--node", "vm", "--status", "succeeded"], &[&good]),
        (&["--text", "ashley"], &[&old]),
        (&["--format", "table"], &[&good, &new, &old]),
        (&["--since", "2026-11-20", "--status", "failed", "--after", &new], &[&old]),
    ] {
        let all = [&["tasks"], arguments, &["--format", "json"]].concat();
        let all = if arguments.contains(&"--format") { vec!["tasks", "--format", "json"] } else { all };
        let text = fixture.expect(&all, 0, "").await?;
        let tasks: Vec<Value> = serde_json::from_str(&text)?;
        let ids: Vec<&str> = tasks.iter().filter_map(|task| task["id"].as_str()).collect();
        ensure!(ids == found.iter().map(|id| id.as_str()).collect::<Vec<_>>(), "{arguments:?}: {text}");
    }
    let text =
        fixture.expect(&["tasks", "--status", "failed", "--limit", "1"], 0, "| mail  | failed | vm ").await?;
    ensure!(text.contains(&format!("There are more: --after {new}")), "{text}");
    let by_json = format!("{{\"queue\":\"{}\"}}", q.to_hex());
    fixture.expect(&["tasks", &by_json, "--format", "table"], 0, &format!("{old} | ")).await?;
    fixture.expect(&["tasks", &by_json, "--format", "yaml"], 0, "status: 2\n").await?;
    fixture.expect(&["tasks", &by_json, "--format", "json"], 0, "[{\"_id\":{\"$oid\":").await?;
    fixture.expect(&["tasks", "--queue", "nosuch"], 255, "no queue 'nosuch'").await?;
    fixture
        .expect(&["tasks", "--queue", "mail", "--skip", "1"], 255, "--skip goes with a JSON object")
        .await?;
    fixture.expect(&["tasks", &by_json, "--status", "failed"], 2, "cannot be used with").await?;
    fixture.database.drop_database().await
}

#[tokio::test]
async fn waiting_tasks_run_now_or_before_others_and_archived_ones_again() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let q = queue(&fixture, "q").await?;
    let tasks = fixture.tasks();
    let later = DateTime::from_millis(now() + HOUR);
    let deferred = doc! { "run_at": later, "attempt": 2, "failures": 2 };
    let deferred = insert(&fixture, task(q, -7, 0, deferred)?).await?;
    fixture.expect(&["retry", &deferred, "--reason", "mended"], 0, "queued again").await?;
    let now = tasks.find_one(doc! { "status": -2, "failures": 2 }).await?.context("it is not queued")?;
    let history = now.get_array("history")?;
    ensure!(format!("{history:?}").contains("mended"), "{now}");
    fixture.expect(&["retry", &deferred], 255, "has not ended: its status is -2 (queued)").await?;

    fixture.expect(&["set-task", &deferred, "--priority", "7"], 0, "has the priority 7").await?;
    ensure!(tasks.count_documents(doc! { "priority": 7 }).await? == 1, "it has no priority");
    fixture.expect(&["set-task", &deferred, "--priority", "1001"], 2, "1001").await?;
    let ended = task(q, -6, 0, doc! { "params": { "to": "ashley" }, "timeout": 90, "node": "vm" })?;
    let ended = insert(&fixture, ended).await?;
    fixture.expect(&["set-task", &ended, "--priority", "1"], 255, "does not wait any more").await?;
    let shown = fixture.expect(&["show", &ended], 0, &format!("Queue       q ({})\n", q.to_hex())).await?;
    ensure!(shown.contains("Reason      its runner or its node disappeared\n"), "{shown}");
    fixture.expect(&["audit", "--queue", "q", "--what", "task priority"], 0, "| priority: 7 |").await?;

    fixture.expect(&["archive", &ended], 0, &format!("{ended} archived\n")).await?;
    fixture.expect(&["explain", &ended], 0, "It is in the archive, since ").await?;
    fixture.expect(&["cancel", &ended], 255, "has ended: its status is -6 (orphaned)").await?;
    fixture.expect(&["retry", &ended], 0, "is archived: submitted again as ").await?;
    let new = tasks.find_one(doc! { "status": -2, "timeout": 90 }).await?.context("no new task")?;
    ensure!(new.get_document("params")? == &doc! { "to": "ashley" }, "{new}");
    let archive = fixture.database.database.collection::<Document>("tasks.archive");
    ensure!(archive.count_documents(doc! {}).await? == 1, "the archived task is gone");
    fixture.database.drop_database().await
}

#[tokio::test]
async fn batches_graphs_locks_and_arrays_have_commands() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("batch.ndjson");
    let file = path.to_str().context("a path that is not UTF-8")?;
    let entry = |params: &str| format!("{{\"queue\":\"q\",\"params\":{{\"n\":1}}{params}}}\n");
    std::fs::write(&path, format!("{}{}", entry(",\".locks\":[\"db\"]"), entry(",\".after\":-1")))?;
    let text = fixture.expect(&["batch", file], 0, "2 entries accepted, 0 rejected\n").await?;
    let ids: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(' ')).map(|(_, id)| id).take(2).collect();
    std::fs::write(&path, "[{\"queue\":\"nosuch\",\"params\":{\"n\":1}}]")?;
    fixture.expect(&["batch", file], 255, "1 rejected: queue not found\n").await?;
    let graph = fixture.expect(&["graph", ids[1]], 0, "2 total tasks.\n").await?;
    ensure!(graph.contains(&format!("| {} | blocked | {}", ids[1], ids[0])), "{graph}");
    fixture.expect(&["locks"], 0, "total locks.\n").await?;
    fixture.expect(&["locks", "nosuch"], 255, "nobody holds this lock").await?;

    let array = ["create-task", "q", "a", "b", "--array", "0-2"];
    let text = fixture.expect(&array, 0, "Created an array of 3 tasks").await?;
    let id = text.lines().find(|line| line.len() == 24).context("no id")?;
    fixture.expect(&["show", id], 0, &format!("Array       {id}\n")).await?;
    let logs = fixture.expect(&["logs", id], 0, &format!("{id} is an array of 3 tasks")).await?;
    ensure!(logs.contains("element 2 (2), task "), "{logs}");
    fixture.expect(&["logs", "-f", id], 255, "array show").await?;
    fixture.expect(&["wait", id, "--timeout", "1s"], 124, "is an array of 3 tasks").await?;
    fixture.expect(&["cancel", id], 0, "cancel: 3 tasks\n").await?;
    fixture.expect(&["cancel", "6b0003bb686c8275d8013333"], 255, "no task with id").await?;
    fixture.database.drop_database().await
}
