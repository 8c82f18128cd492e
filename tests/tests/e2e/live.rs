//! Output while a task runs: written by the runner, kept when the runner dies, shown by the DCI.

use std::process::Stdio;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::live::{CHUNK_BYTES, KEPT_BYTES, LiveStream, LiveSweep};
use disbatch_core::model::TaskId;
use disbatch_core::output::StreamName;
use disbatch_core::store::Store;
use disbatch_tests::{Dci, PATIENCE, Script, World, binary, eventually};
use futures::TryStreamExt;
use mongodb::Collection;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Prints as it is told, and then waits for the file `go`.
const PRINTER: &str = r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
sys.stdout.write(params.get("out", "") * params.get("times", 1))
sys.stdout.flush()
sys.stderr.write(params.get("err", ""))
sys.stderr.flush()
while not os.path.exists(params["go"]):
    time.sleep(0.02)
print("the end")
"#;

fn printer(world: &World, mut params: Document) -> Document {
    params.insert("go", world.path().join("go").display().to_string());
    params
}

fn go(world: &World) -> anyhow::Result<()> {
    Ok(std::fs::write(world.path().join("go"), "")?)
}

fn collection(world: &World) -> Collection<Document> {
    world.database().collection("tasks.live")
}

fn stdout(task: TaskId, attempt: i64) -> LiveStream {
    LiveStream { task, attempt, stream: StreamName::Stdout }
}

/// What there is of a stream, from `from` on: the offsets at which it begins, and the bytes.
async fn read(store: &Store, of: LiveStream, from: u64) -> anyhow::Result<(Vec<u64>, Vec<u8>)> {
    let pieces = store.read_live(of, from, usize::MAX).await?;
    Ok((pieces.iter().map(|p| p.offset).collect(), pieces.into_iter().flat_map(|p| p.bytes).collect()))
}

async fn attempt_of(world: &World, task: TaskId) -> anyhow::Result<i64> {
    let task = world.task(task).await?;
    Ok(task.get("attempt").and_then(|n| n.as_i64().or_else(|| n.as_i32().map(i64::from))).unwrap_or(0))
}

#[tokio::test]
async fn streams_are_read_from_any_byte_on_and_trimmed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let task = TaskId(ObjectId::new());
    let of = stdout(task, 2);
    let bytes: Vec<u8> = (0..=250).cycle().take(3 * CHUNK_BYTES + 17).collect();
    store.append_live(of, 0, &bytes).await?;
    let (offsets, all) = read(&store, of, 0).await?;
    assert_eq!(offsets, [0, 1, 2, 3].map(|n| n * CHUNK_BYTES as u64));
    assert!(all == bytes);
    for from in
        [1, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5, bytes.len() - 1, bytes.len(), bytes.len() + 1]
    {
        let (offsets, rest) = read(&store, of, from as u64).await?;
        assert!(rest == bytes[from.min(bytes.len())..], "from {from}: {offsets:?}");
        assert!(offsets.first().is_none_or(|first| *first == from as u64), "from {from}: {offsets:?}");
    }
    // The last chunk grows; repeating a write changes nothing.
    let last = 3 * CHUNK_BYTES;
    let grown = [&bytes[last..], b"more"].concat();
    for _ in 0..2 {
        store.append_live(of, last as u64, &grown).await?;
    }
    assert_eq!(read(&store, of, bytes.len() as u64).await?, (vec![bytes.len() as u64], b"more".to_vec()));
    let first = 0..bytes.len() as u64 + 4;
    assert_eq!(store.live_extent(of).await?, std::slice::from_ref(&first));
    // A later part, then trimming.
    let end = KEPT_BYTES + CHUNK_BYTES as u64;
    store.append_live(of, end - 3, b"end").await?;
    assert_eq!(store.live_extent(of).await?, [first, end - 3..end]);
    store.trim_live(of, end).await?;
    assert_eq!(read(&store, of, 0).await?.0[0], CHUNK_BYTES as u64);
    // Other streams and attempts are others.
    let other = LiveStream { stream: StreamName::Stderr, ..of };
    assert_eq!(read(&store, other, 0).await?.1, b"");
    store.append_live(stdout(task, 1), 0, b"earlier").await?;
    store.remove_live(task, Some(2)).await?;
    assert_eq!(read(&store, of, 0).await?.1, b"");
    assert_eq!(read(&store, stdout(task, 1), 0).await?.1, b"earlier");
    store.remove_live(task, None).await?;
    assert_eq!(collection(&world).count_documents(doc! {}).await?, 0);
    world.end().await
}

#[tokio::test]
async fn what_is_sealed_is_text_in_the_task_or_a_file() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let task = TaskId(ObjectId::new());
    let stderr = LiveStream { stream: StreamName::Stderr, ..stdout(task, 1) };
    assert_eq!(store.seal_live(task, 1).await?, (Bson::Null, Bson::Null));
    store.append_live(stdout(task, 1), 0, "a ☃".as_bytes()).await?;
    store.append_live(stderr, 100, b"\xff\xfe").await?;
    let (out, err) = store.seal_live(task, 1).await?;
    assert_eq!(out, Bson::from("a ☃"));
    let id = err.as_object_id().context("no file")?;
    let file = world.file(id).await?;
    assert_eq!(file.get_document("metadata")?, &doc! { "task_id": task, "encoding": "binary" });
    let bytes: Vec<Vec<u8>> = store.read_output(id).await?.try_collect().await?;
    assert_eq!(bytes.concat(), b"[100 bytes not kept]\n\xff\xfe");
    store.discard_output(&[out, err]).await?;
    assert_eq!(world.chunks(id).await?.len(), 0);
    // More than a document is meant to hold.
    let much = "0123456789\n".repeat(200_000);
    store.append_live(stdout(task, 1), 0, much.as_bytes()).await?;
    let id = store.seal_live(task, 1).await?.0.as_object_id().context("no file")?;
    let bytes: Vec<Vec<u8>> = store.read_output(id).await?.try_collect().await?;
    assert!(bytes.concat() == much.as_bytes());
    let file = store.find_output(id).await?;
    for from in [1, 261_119, 261_120, 1_000_000, much.len() - 1, much.len()] {
        let bytes: Vec<Vec<u8>> = store.read_output_from(id, file, from as u64).await?.try_collect().await?;
        assert!(bytes.concat() == much.as_bytes()[from..], "from {from}");
    }
    world.end().await
}

#[tokio::test]
async fn output_is_there_while_the_task_runs_and_gone_from_there_afterwards() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Printer", text: PRINTER }, 1).await?;
    let params = printer(&world, doc! { "out": "so far\n", "err": "hm\n" });
    let id = world.submit(queue, vec![params]).await?[0];
    let _den = world.den("n1")?;
    world.until_status(id, 0).await?;
    let attempt = attempt_of(&world, id).await?;
    eventually("live output", || async {
        let (out, err) = world.live(id, attempt).await?;
        Ok((out == b"so far\n" && err == b"hm\n").then_some(()))
    })
    .await?;
    assert_eq!(world.status(id).await?, 0);
    go(&world)?;
    let task = world.until_status(id, 1).await?;
    assert_eq!(task.get_str("stdout")?, "so far\nthe end\n");
    eventually("its removal", || async {
        Ok((collection(&world).count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn a_task_that_ends_at_once_writes_nothing_to_show() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho quick\n";
    let queue = world.script_queue(Script { name: "Quick", text }, 1).await?;
    // Without a DEN nobody else makes the collection.
    let task = world.run_by_hand(queue, doc! {}, &["--quiet"]).await?;
    assert_eq!(task.get_str("stdout")?, "quick\n");
    let names = world.database().list_collection_names().await?;
    assert!(!names.contains(&"tasks.live".to_owned()), "{names:?}");
    world.end().await
}

#[tokio::test]
async fn of_a_flood_the_newest_is_kept_in_few_documents() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Printer", text: PRINTER }, 1).await?;
    let params = printer(&world, doc! { "out": "0123456789abcde\n", "times": 3 << 20 });
    let id = world.submit(queue, vec![params]).await?[0];
    let _den = world.den("n1")?;
    world.until_status(id, 0).await?;
    let (store, of) = (world.store(), stdout(id, attempt_of(&world, id).await?));
    let whole: u64 = 16 * (3 << 20);
    let extent = eventually("the newest output", || async {
        let extent = store.live_extent(of).await?;
        Ok(extent.last().is_some_and(|last| last.end == whole).then_some(extent))
    })
    .await?;
    let kept: u64 = extent.iter().map(|range| range.end - range.start).sum();
    assert!(kept <= KEPT_BYTES + (1 << 20), "{kept} bytes are kept: {extent:?}");
    for range in extent {
        let (offsets, bytes) = read(&store, of, range.start).await?;
        let at = usize::try_from(offsets[0] % 16)?;
        assert!(bytes.starts_with(&b"0123456789abcde\n"[at..]), "offsets are those of the stream");
    }
    go(&world)?;
    world.until_status(id, 1).await?;
    world.end().await
}

#[tokio::test]
async fn a_plugin_that_prints_little_leaves_few_documents() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\nn=0\nuntil [ $n = 60 ]; do n=$((n + 1)); echo tick $n; sleep 0.1; done\ncat > /dev/null\n";
    let queue = world.script_queue(Script { name: "Ticker", text }, 1).await?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let _den = world.den("n1")?;
    world.until_status(id, 0).await?;
    let (store, of) = (world.store(), stdout(id, attempt_of(&world, id).await?));
    eventually("a good part of it", || async {
        Ok((read(&store, of, 0).await?.1.len() > 200).then_some(()))
    })
    .await?;
    assert_eq!(collection(&world).count_documents(doc! { "task": id }).await?, 1);
    world.until_status(id, 1).await?;
    world.end().await
}

#[tokio::test]
async fn what_a_task_had_printed_outlives_its_runner() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Printer", text: PRINTER }, 1).await?;
    let params = printer(&world, doc! { "out": "precious\n", "err": "trouble\n" });
    let id = world.submit(queue, vec![params]).await?[0];
    let den = world.den("n1")?;
    let running = world.until_status(id, 0).await?;
    let attempt = attempt_of(&world, id).await?;
    eventually("live output", || async {
        let (out, err) = world.live(id, attempt).await?;
        Ok((!out.is_empty() && !err.is_empty()).then_some(()))
    })
    .await?;
    let pid = running.get("pid").and_then(Bson::as_i64).context("the task does not name its runner")?;
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
    let task = world.until_status(id, -6).await?;
    assert_eq!(task.get_str("stdout")?, "precious\n", "{}", den.log()?);
    assert_eq!(task.get_str("stderr")?, "trouble\n");
    eventually("its removal", || async {
        Ok((collection(&world).count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await?;
    world.end().await
}

/// Starts a DCI and returns it with its address.
async fn dci(world: &World) -> anyhow::Result<(Child, String)> {
    let mut child = Command::new(binary("dci")?)
        .arg("--config")
        .arg(world.config())
        .args(["--listen", "127.0.0.1:0"])
        .env("DISBATCH_LOG", "info")
        .env("DISBATCH_LOG_FORMAT", "json")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut log = BufReader::new(child.stderr.take().context("no standard error")?).lines();
    let mut address = None;
    while address.is_none() {
        let line = log.next_line().await?.context("the DCI ended before it listened")?;
        let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        address = event.pointer("/fields/address").and_then(serde_json::Value::as_str).map(str::to_owned);
    }
    // Its log must not fill the pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    Ok((child, format!("http://{}", address.unwrap_or_default())))
}

/// A client that reads an address to its end.
fn curl(address: &str) -> anyhow::Result<Child> {
    let mut curl = Command::new("curl");
    curl.args(["-sSN", "--noproxy", "*", address]).stdout(Stdio::piped()).kill_on_drop(true);
    curl.spawn().context("this test needs curl: please install it")
}

#[tokio::test]
async fn a_client_sees_output_before_the_task_ends() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Printer", text: PRINTER }, 1).await?;
    let id = world.submit(queue, vec![printer(&world, doc! { "out": "first line\n" })]).await?[0];
    let (_dci, address) = dci(&world).await?;
    let mut follower = curl(&format!("{address}/tasks/{id}/stdout?.follow=1"))?;
    let mut events = curl(&format!("{address}/tasks/{id}/events"))?;
    let waiting = curl(&format!("{address}/tasks/{id}/wait"))?;
    let _den = world.den("n1")?;
    let mut output = BufReader::new(follower.stdout.take().context("no output")?);
    let mut line = String::new();
    timeout(PATIENCE, output.read_line(&mut line)).await??;
    assert_eq!(line, "first line\n");
    assert_eq!(world.status(id).await?, 0, "the task still runs");
    // Only now may it end.
    go(&world)?;
    let mut rest = String::new();
    timeout(PATIENCE, output.read_to_string(&mut rest)).await??;
    assert_eq!(rest, "the end\n");
    let mut told = String::new();
    let mut source = events.stdout.take().context("no output")?;
    timeout(PATIENCE, source.read_to_string(&mut told)).await??;
    assert!(told.starts_with("event: status\n"), "{told}");
    assert!(told.contains("first line") && told.contains("the end"), "{told}");
    assert!(told.trim_end().lines().rev().nth(1) == Some("event: end"), "{told}");
    let waited = timeout(PATIENCE, waiting.wait_with_output()).await??;
    let waited: serde_json::Value = serde_json::from_slice(&waited.stdout)?;
    assert_eq!((&waited["status"], &waited["changed"]), (&1.into(), &true.into()));
    world.end().await
}

#[tokio::test]
async fn a_dci_that_stops_does_not_wait_for_its_followers() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let (mut dci, address) = dci(&world).await?;
    let mut events = curl(&format!("{address}/tasks/{id}/events"))?;
    let follower = curl(&format!("{address}/tasks/{id}/stdout?.follow=1"))?;
    let mut told = BufReader::new(events.stdout.take().context("no output")?);
    let mut line = String::new();
    timeout(PATIENCE, told.read_line(&mut line)).await??;
    let pid = dci.id().context("the DCI has ended")?;
    let began = tokio::time::Instant::now();
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
    timeout(PATIENCE, dci.wait()).await??;
    assert!(began.elapsed().as_secs() < 25, "it waited for those who follow");
    let followed = timeout(PATIENCE, follower.wait_with_output()).await??;
    assert!(!followed.status.success(), "what is not complete does not look as if it were");
    world.end().await
}

#[tokio::test]
async fn who_waits_for_output_hears_of_it_while_it_comes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Printer", text: PRINTER }, 1).await?;
    let _den = world.den("n1")?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = world.submit(queue, vec![printer(&world, doc! {})]).await?[0];
    world.until_status(task, 0).await?;
    let wait = format!("/tasks/{task}/wait?.fields=stdout");
    let before = dci.get(&wait).await?;
    assert_eq!((&before["ended"], &before["live"]), (&json!(false), &json!({ "stdout": 0 })));
    let seen = |answer: &Value| answer["seen"].as_str().map(str::to_owned).context("no seen");
    let since = seen(&before)?;
    let same = dci.get(&format!("{wait}&.since={since}&.timeout=0")).await?;
    assert_eq!((&same["changed"], &same["seen"]), (&json!(false), &json!(since)));

    // Nothing of the task's document changes.
    let write = async { world.store().append_live(stdout(task, 1), 0, b"one line\n").await };
    let address = format!("{wait}&.since={since}&.timeout=60");
    let (answer, wrote) = tokio::join!(dci.get(&address), write);
    wrote?;
    let answer = answer?;
    assert_eq!((&answer["changed"], &answer["live"]), (&json!(true), &json!({ "stdout": 9 })));
    assert_eq!(answer["fields"], json!({ "stdout": null }), "the task holds none yet");
    // Who asks for other fields is not woken by it.
    let other = dci.get(&format!("/tasks/{task}/wait?.fields=node")).await?;
    assert!(other.get("live").is_none() && other["ended"] == false, "{other}");

    go(&world)?;
    let mut since = seen(&answer)?;
    let ended = eventually("the end of the task", || async {
        let answer = dci.get(&format!("{wait}&.since={since}&.timeout=10")).await?;
        Ok((answer["ended"] == true).then_some(answer))
    })
    .await?;
    assert_eq!(ended["fields"], json!({ "stdout": "the end\n" }));
    assert!(ended.get("live").is_none(), "{ended}");
    since = seen(&ended)?;
    assert_eq!(dci.get(&format!("{wait}&.since={since}&.timeout=0")).await?["changed"], false);
    world.end().await
}

/// As a DEN leaves it that was stopped, wrote a piece for a runner that had ended its task without it, and was killed.
#[tokio::test]
async fn live_output_of_what_is_over_is_swept() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "janitor": { "every": 0.2 } }))?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Nobodys", doc! {}).await?;
    let ids = world.submit(queue, vec![doc! {}; 3]).await?;
    world.set(ids[0], doc! { "status": 1, "attempt": 1_i64 }).await?;
    world.set(ids[1], doc! { "status": 0, "node": "elsewhere", "attempt": 2_i64 }).await?;
    // Claimed by a program that does not count.
    world.set(ids[2], doc! { "status": 0, "node": "elsewhere" }).await?;
    world.database().collection::<Document>("nodes").insert_one(doc! { "node": "elsewhere" }).await?;
    let gone = TaskId(ObjectId::new());
    let over = [stdout(ids[0], 1), stdout(ids[1], 1), stdout(gone, 1)];
    let running = [stdout(ids[1], 2), stdout(ids[2], 0)];
    for of in over.into_iter().chain(running) {
        store.append_live(of, 0, b"late").await?;
    }
    let mut sweep = LiveSweep::default();
    assert_eq!(store.sweep_live(&mut sweep).await?, 0, "whoever ends the attempt may be about to do so");
    let long_ago =
        doc! { "$set": { "at": bson::DateTime::from_millis(store.now().timestamp_millis() - 60_000) } };
    collection(&world).update_many(doc! {}, long_ago).await?;
    let _den = world.den("n1")?;
    eventually("it to be removed", || async {
        Ok((collection(&world).count_documents(doc! {}).await? == 2).then_some(()))
    })
    .await?;
    for of in running {
        assert_eq!(read(&store, of, 0).await?.1, b"late", "{of:?}");
    }
    assert_eq!(store.sweep_live(&mut sweep).await?, 0);
    world.end().await
}
