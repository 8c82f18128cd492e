//! Large output is stored while the plugin still writes it, as it would be stored afterwards.

use std::path::Path;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::{QueueId, TaskId, whole_number};
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::task::CancelRequest;
use disbatch_tests::{Script, World, eventually};
use futures::TryStreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::outage::start;

const MIB: usize = 1024 * 1024;

/// A plugin that writes the file `first`, waits for the file `go`, and writes the file `second`.
async fn halves(world: &World) -> anyhow::Result<QueueId> {
    let folder = world.path().display();
    let text = format!(
        "#!/bin/sh\ncat {folder}/first\n: > {folder}/waits\n\
         until [ -e {folder}/go ]; do sleep 0.05; done\ncat {folder}/second\n"
    );
    world.script_queue(Script { name: "Halves", text: &text }, 1).await
}

fn write_halves(folder: &Path, first: &[u8], second: &[u8]) -> anyhow::Result<()> {
    for file in ["go", "waits"] {
        let _absent = std::fs::remove_file(folder.join(file));
    }
    std::fs::write(folder.join("first"), first)?;
    Ok(std::fs::write(folder.join("second"), second)?)
}

/// A task whose plugin has written its first half, of which a part has been stored.
async fn half_stored(world: &World, queue: QueueId, chunks: u64) -> anyhow::Result<TaskId> {
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    eventually("chunks while the plugin waits", || async {
        let stored = world.task(task).await?;
        let Ok(uploads) = stored.get_array("uploads") else { return Ok(None) };
        let found = chunks_of(world, doc! { "files_id": { "$in": uploads } }).await?;
        Ok((found >= chunks).then_some(()))
    })
    .await?;
    assert_eq!(world.status(task).await?, 0);
    assert!(files(world).await?.iter().all(|file| !is_of(file, task)), "there is no file yet");
    Ok(task)
}

async fn chunks_of(world: &World, filter: Document) -> anyhow::Result<u64> {
    Ok(world.database().collection::<Document>("tasks.chunks").count_documents(filter).await?)
}

async fn files(world: &World) -> anyhow::Result<Vec<Document>> {
    Ok(world.database().collection::<Document>("tasks.files").find(doc! {}).await?.try_collect().await?)
}

fn is_of(file: &Document, task: TaskId) -> bool {
    file.get_document("metadata").is_ok_and(|data| data.get_object_id("task_id").ok() == Some(task.0))
}

/// How many chunks belong to no file.
async fn stray_chunks(world: &World) -> anyhow::Result<u64> {
    let ids: Vec<Bson> = files(world).await?.iter().filter_map(|file| file.get("_id").cloned()).collect();
    chunks_of(world, doc! { "files_id": { "$nin": ids } }).await
}

/// What is stored under `id`, but for what differs with each upload.
async fn stored(world: &World, id: ObjectId) -> anyhow::Result<(Document, Vec<Document>)> {
    let (mut file, mut chunks) = (world.file(id).await?, world.chunks(id).await?);
    assert!(file.keys().eq(["_id", "filename", "length", "chunkSize", "uploadDate", "md5", "metadata"]));
    for varying in ["_id", "uploadDate"] {
        file.remove(varying);
    }
    for chunk in &mut chunks {
        assert!(chunk.keys().eq(["_id", "files_id", "n", "data"]));
        chunk.remove("_id");
        chunk.remove("files_id");
    }
    Ok((file, chunks))
}

/// The task's standard output is stored as if all of it had been stored at once.
async fn assert_stored_like(world: &World, task: TaskId, output: &[u8]) -> anyhow::Result<()> {
    let encoding = if std::str::from_utf8(output).is_ok() { Encoding::Text } else { Encoding::Binary };
    let early = world.task(task).await?.get_object_id("stdout")?;
    let late = ObjectId::new();
    world.store().put_output(late, (task, StreamName::Stdout), encoding, output).await?;
    // Not `assert_eq`, which would print it.
    assert!(stored(world, early).await? == stored(world, late).await?);
    let bytes: Vec<Vec<u8>> = world.store().read_output(early).await?.try_collect().await?;
    assert!(bytes.concat() == output);
    assert_eq!(stray_chunks(world).await?, 0);
    Ok(())
}

fn go(world: &World) -> anyhow::Result<()> {
    Ok(std::fs::write(world.path().join("go"), "")?)
}

#[tokio::test]
async fn what_is_stored_early_is_the_same_as_what_is_stored_late() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = halves(&world).await?;
    let _den = world.den("n1")?;
    let text = b"0123456789abcde\n".repeat(2 * MIB);
    let wide = "é☃𝄞a".repeat(4 * MIB).into_bytes();
    let noise: Vec<u8> = (0..=255).cycle().take(32 * MIB).collect();
    let halves: [(&str, &[u8], &[u8]); 5] = [
        ("text", &text, &text[..9 * MIB]),
        (
            "characters of several bytes, the second half within one",
            &wide[..20 * MIB + 1],
            &wide[20 * MIB + 1..],
        ),
        ("noise", &noise[..6 * MIB], &noise[6 * MIB..]),
        ("text that turns out to be none", &text, b"\xff and more"),
        ("text that ends within a character", &text, "☃".as_bytes().split_at(2).0),
    ];
    for (what, first, second) in halves {
        write_halves(world.path(), first, second)?;
        let task = half_stored(&world, queue, 16).await?;
        go(&world)?;
        let ended = world.until_status(task, 1).await?;
        assert_eq!(ended.get("complete"), Some(&Bson::Boolean(true)), "{what}");
        assert!(!ended.contains_key("uploads"), "{what}");
        assert_stored_like(&world, task, &[first, second].concat()).await.context(what)?;
    }
    world.end().await
}

#[tokio::test]
async fn output_that_may_stay_in_the_task_is_not_stored_early() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = halves(&world).await?;
    let _den = world.den("n1")?;
    write_halves(world.path(), &b"x".repeat(15 * MIB), b"")?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    eventually("the first half", || async { Ok(world.path().join("waits").exists().then_some(())) }).await?;
    assert!(!world.task(task).await?.contains_key("uploads"));
    go(&world)?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?.len(), 15 * MIB);
    assert_eq!(chunks_of(&world, doc! {}).await?, 0);
    world.end().await
}

#[tokio::test]
async fn a_cancelled_task_keeps_its_output_and_leaves_no_other_chunks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = halves(&world).await?;
    let _den = world.den("n1")?;
    let first = b"0123456789abcde\n".repeat(2 * MIB);
    write_halves(world.path(), &first, b"")?;
    let task = half_stored(&world, queue, 16).await?;
    eventually("all of the first half", || async { Ok(world.path().join("waits").exists().then_some(())) })
        .await?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    world.store().cancel_task(task, &request).await?;
    world.until_status(task, -3).await?;
    assert_stored_like(&world, task, &first).await?;
    world.end().await
}

async fn runner_of(world: &World, task: TaskId) -> anyhow::Result<Pid> {
    let pid = world.task(task).await?.get("pid").and_then(whole_number);
    Ok(Pid::from_raw(i32::try_from(pid.unwrap_or_default())?))
}

#[tokio::test]
async fn a_runner_that_is_killed_leaves_no_chunks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = halves(&world).await?;
    let _den = world.den("n1")?;
    // Killed in the middle of its upload, and when it waits for more.
    for chunks in [8, 40] {
        write_halves(world.path(), &b"0123456789abcde\n".repeat(8 * MIB), b"")?;
        let task = half_stored(&world, queue, chunks).await?;
        kill(runner_of(&world, task).await?, Signal::SIGKILL)?;
        world.until_status(task, -6).await?;
        eventually("the chunks to be removed", || async {
            Ok((stray_chunks(&world).await? == 0).then_some(()))
        })
        .await?;
    }
    world.end().await
}

#[tokio::test]
async fn a_run_that_was_taken_away_removes_what_it_has_stored() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = halves(&world).await?;
    let den = world.den("n1")?;
    write_halves(world.path(), &b"0123456789abcde\n".repeat(2 * MIB), b"")?;
    let task = half_stored(&world, queue, 16).await?;
    world.set(task, doc! { "instance": "another", "uploads": [] }).await?;
    go(&world)?;
    eventually("all of it to be removed", || async {
        let gone = chunks_of(&world, doc! {}).await? == 0 && files(&world).await?.is_empty();
        Ok(gone.then_some(()))
    })
    .await?;
    assert_eq!(world.status(task).await?, 0, "{}", den.log()?);
    world.end().await
}

#[tokio::test]
async fn a_database_that_goes_away_meanwhile_neither_holds_the_plugin_up_nor_loses_output()
-> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut server = start(data.path(), None).await?;
    let port = server.port();
    let world = World::at(server.uri()).await?;
    let queue = halves(&world).await?;
    let _den = world.den("n1")?;
    let (first, second) = (b"0123456789abcde\n".repeat(2 * MIB), b"fedcba987654321\n".repeat(2 * MIB));
    let folder = world.path();
    write_halves(folder, &first, &second)?;
    let text = std::fs::read_to_string(world.plugins().join("Halves/run"))?;
    std::fs::write(world.plugins().join("Halves/run"), format!("{text}: > {}/ended\n", folder.display()))?;
    let task = half_stored(&world, queue, 16).await?;
    kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGKILL)?;
    server.wait().await?;
    go(&world)?;
    eventually("the plugin's end", || async { Ok(folder.join("ended").exists().then_some(())) }).await?;
    drop(server);
    let server = start(data.path(), Some(port)).await?;
    world.until_status(task, 1).await?;
    assert_stored_like(&world, task, &[first, second].concat()).await?;
    server.stop().await
}
