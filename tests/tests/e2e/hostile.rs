//! What knows no measure: a plugin that floods its control channel, and a search that keeps the database busy.

use std::time::{Duration, Instant};

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::model::whole_number;
use disbatch_core::task::TaskQuery;
use disbatch_tests::{PATIENCE, Script, World};
use futures::TryStreamExt;
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use tokio::time::timeout;

/// How much the plugin says.
const FLOOD: i64 = 200 * 1024 * 1024;

/// No process of ours may ever have had so much memory, in KiB.
const MOST_MEMORY: u64 = 128 * 1024;

/// Waits for the file `go`, then tells its progress for as many bytes as it is told.
const FLOODS: Script<'_> = Script {
    name: "Floods",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
while not os.path.exists(params["go"]):
    time.sleep(0.02)
line = json.dumps({"progress": {"percent": 50, "message": "x" * 100}}).encode() + b"\n"
block = line * 4096
left = params["bytes"]
with open(int(os.environ["DISBATCH_CONTROL_FD"]), "wb") as control:
    while left > 0:
        control.write(block)
        left -= len(block)
    control.write(b'{"progress":{"percent":100,"message":"all"}}\n{"result":{"sent":true}}\n')
"#,
};

/// A number in `/proc/PID/status`.
fn status_of(process: u64, field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.with_context(|| format!("no {field} of {process}"))?.parse()?)
}

/// How often progress was written until the task succeeded.
async fn progress_writes(changes: &mut ChangeStream<ChangeStreamEvent<Document>>) -> anyhow::Result<u64> {
    let mut writes = 0;
    loop {
        let event = timeout(PATIENCE, changes.try_next()).await.context("the task does not succeed")??;
        let update = event.context("there are no more changes")?.update_description;
        let Some(updated) = update.map(|update| update.updated_fields) else { continue };
        if updated.keys().any(|key| key == "progress" || key.starts_with("progress.")) {
            writes += 1;
        }
        if updated.get("status").and_then(whole_number) == Some(1) {
            return Ok(writes);
        }
    }
}

#[tokio::test]
async fn a_flood_of_progress_costs_neither_memory_nor_writes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(FLOODS, 1).await?;
    let tasks = world.tasks();
    let mut changes = tasks.watch().await?;
    let _den = world.den_at_work("node1").await?;
    let go = world.path().join("go");
    let params = doc! { "go": go.display().to_string(), "bytes": FLOOD };
    let id = *world.submit(queue, vec![params]).await?.first().context("nothing was submitted")?;
    let running = world.until_status(id, 0).await?;
    let runner = running.get("pid").and_then(whole_number).context("the task does not name its runner")?;
    let runner = u64::try_from(runner)?;

    let begun = Instant::now();
    std::fs::write(&go, "")?;
    let writes = progress_writes(&mut changes).await?;
    // One a second, the first and the last at any time.
    let most = begun.elapsed().as_secs() + 3;
    assert!((1..=most).contains(&writes), "{writes} writes in {:?}", begun.elapsed());

    // A runner stays for the next task.
    let den = status_of(runner, "PPid")?;
    for process in [runner, den] {
        let peak = status_of(process, "VmHWM")?;
        assert!(peak < MOST_MEMORY, "process {process} had {peak} KiB");
    }
    let task = world.task(id).await?;
    assert_eq!(task.get_document("progress")?.get_str("message")?, "all", "{task}");
    assert_eq!(task.get_document("result")?, &doc! { "sent": true });
    assert_eq!(task.get("stderr"), Some(&bson::Bson::Null), "{task}");
    world.end().await
}

/// Finds nothing, and takes long for each task.
fn endless() -> Document {
    let numbers = doc! { "$range": [0, 300] };
    let inner = doc! { "$sum": { "$map": {
        "input": &numbers, "as": "y", "in": { "$add": ["$$x", "$$y", "$status"] },
    } } };
    let all = doc! { "$sum": { "$map": { "input": &numbers, "as": "x", "in": inner } } };
    doc! { "$expr": { "$lt": [all, 0] } }
}

#[tokio::test]
async fn a_search_that_takes_too_long_is_broken_off() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    world.submit(queue, vec![doc! { "a": 1 }; 300]).await?;
    let store = world.store();
    for archive in [false, true] {
        let query = TaskQuery {
            filter: endless(),
            archive,
            max_time: Some(Duration::from_millis(50)),
            ..TaskQuery::default()
        };
        let outcomes = [
            store.search_tasks(query.clone()).await.map(|tasks| tasks.len()).err(),
            store.count_query(query.clone()).await.err(),
            store.count_query_up_to(&query, 10).await.err(),
        ];
        for outcome in outcomes {
            assert!(outcome.as_ref().is_some_and(|error| error.is_out_of_time()), "{archive}: {outcome:?}");
        }
        let all = TaskQuery { filter: doc! {}, max_time: Some(PATIENCE), ..query };
        assert_eq!(store.search_tasks(all.clone()).await?.len(), 300);
        assert_eq!(store.count_query(all).await?, 300);
    }
    world.end().await
}
