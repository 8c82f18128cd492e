//! What becomes of files that are being stored when the runner is killed or the task is cancelled.

use std::collections::BTreeSet;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::files::{ContentId, EntryQuery};
use disbatch_core::model::{TaskId, whole_number};
use disbatch_core::task::CancelRequest;
use disbatch_tests::{Script, World, eventually};
use futures::TryStreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{age, content, count, latest, submit, versions, world};

/// So many chunks are in its large file.
const CHUNKS: u64 = 192;

/// Writes the same large file each time, and a small one.
const LARGE: Script<'_> = Script {
    name: "Large",
    text: r#"#!/usr/bin/env python3
import random
noise = random.Random(1)
with open("large", "wb") as file:
    for _ in range(192):
        file.write(noise.randbytes(1 << 20))
open("a-small-one", "w").write("small")
"#,
};

/// Writes files that take long to be stored, as each is sent by itself.
const MANY: Script<'_> = Script {
    name: "Many",
    text: r#"#!/usr/bin/env python3
import os
for number in range(6000):
    with open(f"{number}", "wb") as file:
        file.write(os.urandom(20_000))
"#,
};

/// Waits until a part of what a task leaves is stored, and not all of it.
async fn until_half_stored(world: &World) -> anyhow::Result<()> {
    eventually("a part of the file", || async {
        let chunks = count(world, "filesets.chunks", doc! {}).await?;
        Ok((chunks >= 8).then_some(()))
    })
    .await?;
    assert_eq!(versions(world, "done").await?, 0, "all of it was stored too quickly");
    Ok(())
}

async fn kill_runner_of(world: &World, task: TaskId) -> anyhow::Result<()> {
    let pid = world.task(task).await?.get("pid").and_then(whole_number).context("no pid")?;
    Ok(kill(Pid::from_raw(pid.try_into()?), Signal::SIGKILL)?)
}

async fn chunk_ids(world: &World) -> anyhow::Result<BTreeSet<ObjectId>> {
    let chunks = world.database().collection::<Document>("filesets.chunks");
    let found: Vec<Document> =
        chunks.find(doc! {}).projection(doc! { "_id": 1 }).await?.try_collect().await?;
    Ok(found.iter().filter_map(|chunk| chunk.get_object_id("_id").ok()).collect())
}

#[tokio::test]
async fn a_runner_that_is_killed_while_it_stores_leaves_nothing_to_be_seen() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(LARGE, 1).await?;
    let _den = world.den("n1")?;
    let task = submit(&world, queue, doc! {}, doc! { "output": { "name": "large" } }).await?;
    until_half_stored(&world).await?;
    kill_runner_of(&world, task).await?;
    world.until_status(task, -6).await?;
    assert_eq!(latest(&world.store(), "large").await?, None);
    eventually("the version to be taken back", || async {
        Ok((versions(&world, "gone").await? == 1 && versions(&world, "open").await? == 0).then_some(()))
    })
    .await?;
    // The janitor of the DEN would do it after a day.
    eventually("what it had stored to be removed", || async {
        age(&world).await?;
        world.store().sweep_files().await?;
        let left = [
            count(&world, "filesets.chunks", doc! {}).await?,
            count(&world, "filesets.files", doc! {}).await?,
            count(&world, "filesets.entries", doc! {}).await?,
        ];
        Ok((left == [0; 3]).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn the_next_attempt_goes_on_where_a_killed_runner_was() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(LARGE, 1).await?;
    let quick = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    world.update_queue(queue, doc! { "on_orphan": "requeue", "max_attempts": 3, "backoff": quick }).await?;
    let _den = world.den("n1")?;
    let task = submit(&world, queue, doc! {}, doc! { "output": { "name": "large" } }).await?;
    until_half_stored(&world).await?;
    kill_runner_of(&world, task).await?;
    let before = chunk_ids(&world).await?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(ended.get("attempt").and_then(whole_number), Some(2));
    let after = chunk_ids(&world).await?;
    assert!(before.is_subset(&after), "what was there was not sent again");
    assert_eq!(after.len() as u64, CHUNKS + 1);
    let set = latest(&world.store(), "large").await?.context("no set")?;
    assert_eq!((set.count, set.bytes), (2, (CHUNKS << 20) + 5));
    assert_eq!((versions(&world, "done").await?, versions(&world, "open").await?), (1, 0));
    let entries = world.store().fileset_entries(&set, EntryQuery::ALL).await?;
    // This reads all of it, and fails if it is not what it should be.
    assert_eq!(content(&world.store(), entries[1].file).await?.len() as u64, CHUNKS << 20);
    assert_eq!(entries[0].file, ContentId::of(b"small"));
    world.end().await
}

#[tokio::test]
async fn a_task_that_is_cancelled_while_its_files_are_stored_leaves_none() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(MANY, 1).await?;
    let _den = world.den("n1")?;
    let task = submit(&world, queue, doc! {}, doc! { "output": { "name": "many" } }).await?;
    until_half_stored(&world).await?;
    let progress = eventually("the progress of the transfer", || async {
        let progress = world.task(task).await?.get_document("progress").cloned();
        Ok(progress.ok().and_then(|progress| progress.get_str("message").map(str::to_owned).ok()))
    });
    assert!(progress.await?.starts_with("storing output files: "));
    world.store().cancel_task(task, &CancelRequest { by: "a test".to_owned(), reason: None }).await?;
    let ended = world.until_status(task, -3).await?;
    assert!(ended.get_str("stderr")?.contains("the output files were not all stored yet"), "{ended}");
    assert_eq!(latest(&world.store(), "many").await?, None);
    eventually("the version to be taken back", || async {
        Ok((versions(&world, "open").await? == 0).then_some(()))
    })
    .await?;
    assert_eq!(versions(&world, "done").await?, 0);
    world.end().await
}

#[tokio::test]
async fn a_run_that_has_lost_its_task_makes_no_version() -> anyhow::Result<()> {
    let world = world().await?;
    let queue = world.script_queue(MANY, 1).await?;
    let id = world.claimed(queue, doc! {}, "n1").await?;
    world.set(id, doc! { "files": { "output": { "name": "many" } } }).await?;
    let runner = async { world.dtr(&id.to_string(), &["--node", "n1"]).await };
    let thief = async {
        until_half_stored(&world).await?;
        // Somebody has ended the task by hand.
        world.set(id, doc! { "status": -6 }).await
    };
    let (ran, stolen) = tokio::join!(runner, thief);
    stolen?;
    assert_eq!(ran?.code()?, 1);
    assert_eq!(latest(&world.store(), "many").await?, None);
    assert_eq!((versions(&world, "done").await?, versions(&world, "open").await?), (0, 0));
    assert_eq!(world.status(id).await?, -6);
    world.end().await
}
