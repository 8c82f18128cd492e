//! Output is stored completely, where Disbatch looks for it, in bounded memory.

use std::collections::BTreeMap;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::TaskId;
use disbatch_core::output::{CHUNK_SIZE, Encoding, StreamName, Times};
use disbatch_core::store::{Store, StoreError};
use disbatch_tests::{Dci, Script, Server, World};
use futures::TryStreamExt;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

use crate::detour::Held;

/// Does in an exec plugin what the recorded plugin did in Perl. Modes that return something other than
/// a hash, or that die in Perl's way, have no counterpart.
const PEER: &str = r#"#!/usr/bin/env python3
import json, os, signal, sys
mode = json.load(sys.stdin)["params"]["mode"]
statuses = {"strstatus": "1", "zero": 0, "neg": -1, "word": "abc", "float": 1.5, "lead0": "01",
            "refstatus": [1], "three": 3, "big": 99999999999, "newline": "1\n"}
outputs = {"ok": ("out", ""), "wide": ("h\u00e9llo", "snow \u2603"), "three": ("x", "y"), "undefout": ("", ""),
           "bytes": ("bad \u00ff\u00fe bytes", ""), "huge": ("x" * (17 << 20), "small"),
           "nearhuge": ("x" * ((16 << 20) - 200), "small"), "hugewide": ("\u2603" * (6 << 20), "small")}
stdout, stderr = outputs.get(mode, ("x" if mode in statuses else "", ""))
sys.stdout.buffer.write(stdout.encode())
sys.stderr.buffer.write(stderr.encode())
if mode in statuses:
    os.write(int(os.environ["DISBATCH_CONTROL_FD"]), json.dumps({"status": statuses[mode]}).encode() + b"\n")
if mode == "die":
    sys.exit("plugin died")
if mode == "exit3":
    sys.exit(3)
if mode == "segv":
    os.kill(os.getpid(), signal.SIGSEGV)
"#;

/// Rows of which only the status has a counterpart, with the status here: Perl left `exit3` and `segv`
/// running for ever.
const STATUS_ONLY: [(&str, i64); 3] = [("die", 2), ("exit3", 2), ("segv", 2)];

/// Modes that are about Perl values.
const PERL_ONLY: [&str; 8] =
    ["dieref", "undef", "array", "string", "emptyhash", "nostatus", "numout", "refout"];

#[tokio::test]
async fn every_recorded_plugin_result_that_makes_sense_holds() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Peer", text: PEER }, 1).await?;
    let mut compared = BTreeMap::new();
    for line in include_str!("../../fixtures/plugin_results.jsonl").lines() {
        let row: Value = serde_json::from_str(line)?;
        let mode = row["mode"].as_str().context("a row without mode")?;
        if row["task"].is_null() || PERL_ONLY.contains(&mode) {
            continue;
        }
        let arguments: Vec<&str> =
            row["args"].as_array().context("args")?.iter().filter_map(Value::as_str).collect();
        if mode == "huge" && arguments.is_empty() {
            continue; // See `without_gridfs_output_that_does_not_fit_is_replaced_by_the_reason`.
        }
        let task = world.run_by_hand(queue, doc! { "mode": mode }, &arguments).await?;
        let status = Bson::from(task.get("status").cloned()).into_relaxed_extjson();
        if let Some((_, expected)) = STATUS_ONLY.iter().find(|(name, _)| *name == mode) {
            assert_eq!(status, Value::from(*expected), "{mode}");
        } else {
            assert_eq!(status, row["task"]["status"], "{mode}");
            compare_output(&world, &task, &row).await?;
        }
        *compared.entry(mode.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(compared.values().sum::<i32>(), 23, "{compared:?}");
    world.end().await
}

async fn compare_output(world: &World, task: &Document, row: &Value) -> anyhow::Result<()> {
    let mode = &row["mode"];
    assert!(task.get_bool("complete")?, "{mode}");
    for stream in ["stdout", "stderr"] {
        let here = task.get(stream).cloned().unwrap_or(Bson::Undefined);
        match &row["task"][stream] {
            // An exec plugin cannot tell "" from nothing.
            Value::String(text) if text.is_empty() => assert_eq!(here, Bson::Null, "{mode} {stream}"),
            Value::Object(_) => {
                let Bson::ObjectId(id) = here else { anyhow::bail!("{mode} {stream}: {here}, no file") };
                let files = row["files"].as_array().context("files")?;
                let recorded = files.iter().find(|file| file["file"]["filename"] == *stream);
                compare_file(world, task, id, recorded.context("no such file")?).await?;
            }
            recorded => assert_eq!(&here.into_relaxed_extjson(), recorded, "{mode} {stream}"),
        }
    }
    Ok(())
}

/// Compares an output file with one that was recorded.
pub(super) async fn compare_file(
    world: &World,
    task: &Document,
    id: ObjectId,
    recorded: &Value,
) -> anyhow::Result<()> {
    let file = world.file(id).await?;
    assert_eq!(file.get_document("metadata")?, &doc! { "task_id": task.get_object_id("_id")? });
    assert!(file.get_datetime("uploadDate").is_ok());
    let json = Bson::Document(file).into_relaxed_extjson();
    for key in ["filename", "length", "chunkSize", "md5"] {
        assert_eq!(json[key], recorded["file"][key], "{key}");
    }
    let mut keys: Vec<_> = json.as_object().context("no object")?.keys().collect();
    let mut recorded_keys: Vec<_> = recorded["file"].as_object().context("no object")?.keys().collect();
    keys.sort();
    recorded_keys.sort();
    assert_eq!(keys, recorded_keys);
    let chunks = world.chunks(id).await?;
    assert_eq!(Value::from(chunks.len()), recorded["n_chunks"]);
    for (number, recorded) in (0..).zip(recorded["chunks"].as_array().context("chunks")?) {
        let chunk = &chunks[number];
        assert_eq!(chunk.get("n"), Some(&Bson::Int32(i32::try_from(number)?)));
        assert_eq!(Value::from(chunk.get_str("data")?.len()), recorded["len_bytes"]);
    }
    Ok(())
}

#[tokio::test]
async fn without_gridfs_output_that_does_not_fit_is_replaced_by_the_reason() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Peer", text: PEER }, 1).await?;
    for arguments in [&["--gfs", "0"][..], &[]] {
        let id = world.claimed(queue, doc! { "mode": "huge" }, "n1").await?;
        let arguments: Vec<&str> = ["--node", "n1"].iter().chain(arguments).copied().collect();
        let run = world.dtr(&id.to_string(), &arguments).await?;
        assert_eq!(run.code()?, 6, "{}", run.stderr);
        let task = world.task(id).await?;
        assert_eq!(task.get_i32("status")?, 1);
        assert!(!task.get_bool("complete")?);
        assert_eq!(task.get_str("stderr")?, "small");
        assert_eq!(
            task.get_str("stdout")?,
            "Could not store 17825792 bytes of stdout: the task's document would exceed 16 MiB, and gfs is off"
        );
    }
    world.end().await
}

#[tokio::test]
async fn bytes_that_are_no_text_come_back_as_they_were() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\nprintf 'caf\\351 \\377\\376\\000\\n'\nprintf 'fine \\342\\230\\203' >&2\n";
    let queue = world.script_queue(Script { name: "Latin1", text }, 1).await?;
    for gfs in ["auto", "1", "0"] {
        let task = world.run_by_hand(queue, doc! {}, &["--gfs", gfs]).await?;
        assert!(task.get_bool("complete")?);
        let id = task.get_object_id("stdout")?;
        assert_eq!(world.file(id).await?.get_document("metadata")?.get_str("encoding")?, "binary");
        let chunk = world.chunks(id).await?.remove(0);
        assert_eq!(chunk.get_binary_generic("data")?, b"caf\xe9 \xff\xfe\x00\n");
        let bytes: Vec<Vec<u8>> = world.store().read_output(id).await?.try_collect().await?;
        assert_eq!(bytes.concat(), b"caf\xe9 \xff\xfe\x00\n");
        if gfs != "1" {
            assert_eq!(task.get_str("stderr")?, "fine ☃");
        }
    }
    world.end().await
}

/// Prints lines with their numbers: 24 bytes each, so nothing can be lost, doubled or swapped unnoticed.
const NUMBERED: &str = r#"#!/usr/bin/env python3
import json, sys
lines = json.load(sys.stdin)["params"]["lines"]
for start in range(0, lines, 10000):
    sys.stdout.write("".join("line %018d\n" % n for n in range(start, min(start + 10000, lines))))
"#;

#[tokio::test]
async fn thirty_megabytes_are_stored_to_the_byte() -> anyhow::Result<()> {
    for server in [Server::ReplicaSet, Server::Standalone] {
        let world = World::on(server).await?;
        let queue = world.script_queue(Script { name: "Numbered", text: NUMBERED }, 1).await?;
        let lines: usize = 1_300_000;
        let ids = world.submit(queue, vec![doc! { "lines": i64::try_from(lines)? }]).await?;
        let den = world.den("n1")?;
        let task = world.until_status(ids[0], 1).await?;
        let id = task.get_object_id("stdout")?;
        let chunks: Vec<Vec<u8>> = world.store().read_output(id).await?.try_collect().await?;
        let output = String::from_utf8(chunks.concat())?;
        assert_eq!(output.len(), 24 * lines);
        assert!(
            output.lines().enumerate().all(|(n, line)| line == format!("line {n:018}")),
            "{}",
            den.log()?
        );
        world.end().await?;
    }
    Ok(())
}

/// Stores a file.
async fn put(store: &Store, encoding: Encoding, bytes: &[u8]) -> anyhow::Result<ObjectId> {
    let id = ObjectId::new();
    store.put_output(id, (TaskId(ObjectId::new()), StreamName::Stdout), encoding, bytes).await?;
    Ok(id)
}

/// What is between chunks and at the end differs from all else.
fn numbered(length: usize) -> Vec<u8> {
    (0..).flat_map(|n: usize| format!("{n}\n").into_bytes()).take(length).collect()
}

fn damage<T: std::fmt::Debug>(read: Result<T, StoreError>) -> anyhow::Result<String> {
    match read {
        Err(StoreError::DamagedOutput { reason, .. }) => Ok(reason),
        other => anyhow::bail!("{other:?}"),
    }
}

#[tokio::test]
async fn the_end_of_output_is_read_wherever_it_begins() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let wide = "☃\n".repeat(CHUNK_SIZE).into_bytes();
    for (encoding, bytes) in [
        (Encoding::Text, numbered(2 * CHUNK_SIZE + 5_000)),
        (Encoding::Text, numbered(2 * CHUNK_SIZE)),
        (Encoding::Text, wide),
        (Encoding::Binary, numbered(2 * CHUNK_SIZE + 5_000)),
        (Encoding::Binary, numbered(2 * CHUNK_SIZE)),
        (Encoding::Text, Vec::new()),
    ] {
        let id = put(&store, encoding, &bytes).await?;
        let file = store.find_output(id).await?;
        for most in [0, 1, 64 * 1024, CHUNK_SIZE, CHUNK_SIZE + 6_000, bytes.len(), bytes.len() + 1] {
            let from = bytes.len().saturating_sub(most);
            let end = store.read_output_end(id, most).await?;
            assert_eq!(end.offset, from as u64, "{most} of {encoding:?}");
            assert!(end.bytes == bytes[from..], "{most} of {encoding:?}");
            let rest: Vec<Vec<u8>> =
                store.read_output_from(id, file, from as u64).await?.try_collect().await?;
            assert!(rest.concat() == bytes[from..], "from {from} of {encoding:?}");
        }
    }
    world.end().await
}

#[tokio::test]
async fn output_without_its_end_is_not_taken_for_all_of_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let chunks = world.database().collection::<Document>("tasks.chunks");
    let bytes = numbered(2 * CHUNK_SIZE + 5_000);
    for encoding in [Encoding::Text, Encoding::Binary] {
        let id = put(&store, encoding, &bytes).await?;
        let file = store.find_output(id).await?;
        chunks.delete_one(doc! { "files_id": id, "n": 2 }).await?;
        for most in [1, 64 * 1024, bytes.len() + 1] {
            assert_eq!(damage(store.read_output_end(id, most).await)?, "its end is missing", "{most}");
        }
        // What is there is where it was, and what is not is told.
        let from = CHUNK_SIZE + 6_000;
        let rest: Vec<Vec<u8>> = store.read_output_from(id, file, from as u64).await?.try_collect().await?;
        assert!(rest.concat() == bytes[from..2 * CHUNK_SIZE], "{encoding:?}");
        let beyond = store.read_output_from(id, file, 2 * CHUNK_SIZE as u64 + 1).await.map(drop);
        assert_eq!(damage(beyond)?, "it has 522240 bytes and should have 527240");
        chunks.delete_one(doc! { "files_id": id, "n": 0 }).await?;
        let shifted = store.read_output_from(id, file, 1_000).await.map(drop);
        assert_eq!(damage(shifted)?, "chunk 0 is missing");
        chunks.delete_many(doc! { "files_id": id }).await?;
        assert_eq!(damage(store.read_output_end(id, 1).await)?, "its end is missing", "nothing is left");
        let id = put(&store, encoding, &bytes).await?;
        chunks.delete_one(doc! { "files_id": id, "n": 0 }).await?;
        let all = damage(store.read_output_end(id, bytes.len()).await)?;
        assert_eq!(all, "it has 266120 bytes and should have 527240");
    }
    // Its last chunk is there, and is not as long as it was.
    let id = put(&store, Encoding::Text, b"abc").await?;
    chunks.update_one(doc! { "files_id": id }, doc! { "$set": { "data": "ab" } }).await?;
    assert_eq!(damage(store.read_output_end(id, 9).await)?, "it has 2 bytes and should have 3");
    world.end().await
}

#[tokio::test]
async fn a_flood_of_output_does_not_take_the_runner_over_64_mib() -> anyhow::Result<()> {
    let world = World::new().await?;
    // A plugin that needs no memory itself, since the largest of all descendants is what can be measured.
    let text = "#!/bin/sh\nhead -c 600000000 /dev/zero\nhead -c 300000000 /dev/zero | tr '\\0' e >&2\n";
    let queue = world.script_queue(Script { name: "Flood", text }, 1).await?;
    let task = world.run_by_hand(queue, doc! {}, &["--gfs", "auto", "--quiet"]).await?;
    for (stream, length) in [("stdout", 600_000_000), ("stderr", 300_000_000)] {
        let id = task.get_object_id(stream)?;
        assert_eq!(world.file(id).await?.get_i32("length")?, length);
        let chunks = world.database().collection::<Document>("tasks.chunks");
        let stored = chunks.count_documents(doc! { "files_id": id }).await?;
        assert_eq!(stored, u64::try_from(length)?.div_ceil(261_120));
    }
    let peak_kib = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    // Code that is not optimised takes memory, too.
    let of_code = if cfg!(debug_assertions) { 16 * 1024 } else { 0 };
    assert!(peak_kib < 64 * 1024 + of_code, "the runner took {peak_kib} KiB");
    world.end().await
}

#[tokio::test]
async fn an_attempt_keeps_when_the_pieces_of_its_output_came() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho first\nsleep 0.6\necho problem >&2\nsleep 0.6\necho last\nexit 3\n";
    let slow = world.script_queue(Script { name: "Slow", text }, 1).await?;
    let before = SystemClock.now();
    let task = world.run_by_hand(slow, doc! {}, &[]).await?;
    let exit = task.get_document("exit")?;
    let [out, err] = StreamName::ALL.map(|stream| Times::read(exit, stream));
    let (out, err) = (out.context("no times of stdout")?, err.context("no times of stderr")?);
    assert!(before <= out.since && out.since <= SystemClock.now() && out.since == err.since, "{exit}");
    let ([[first, 0], [last, 6]], [[problem, 0]]) = (&out.pieces[..], &err.pieces[..]) else {
        anyhow::bail!("other pieces: {exit}");
    };
    // Each is noted when it is read, which on a busy machine is a little later.
    assert!(first + 500 <= *problem && problem + 500 <= *last, "{exit}");

    // The next attempt has its own, and those of the first one go with it.
    let id = TaskId(task.get_object_id("_id")?);
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    dci.request(reqwest::Method::POST, &format!("/tasks/{id}/retry")).send().await?.error_for_status()?;
    let attempts = world.store().list_attempts(id).await?;
    assert_eq!(attempts[0].get_document("exit")?, exit);
    assert_eq!(world.task(id).await?.get("exit"), None);

    let quick = Script { name: "Quick", text: "#!/bin/sh\necho one\necho two >&2\n" };
    let queue = world.script_queue(quick, 1).await?;
    let task = world.run_by_hand(queue, doc! {}, &[]).await?;
    assert!(!task.get_document("exit")?.contains_key("output"), "{task}");
    world.end().await
}

#[tokio::test]
async fn one_task_is_written_as_its_options_say() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("NoSuchPlugin", doc! {}).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let id = put(&world.store(), Encoding::Text, b"large").await?;
    world.set(task, doc! { "status": 1, "stdout": id, "stderr": "small" }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let get = async |options: &str| dci.get(&format!("/tasks/{task}{options}")).await;
    let plain = get("").await?;
    assert_eq!(plain["stdout"]["$oid"], id.to_hex());
    let full = get("?.full=1").await?;
    assert_eq!((&full["stdout"], &full["stderr"]), (&json!("large"), &json!("small")));
    let terse = get("?.terse=1").await?;
    assert_eq!((&terse["stdout"], &terse["stderr"]), (&plain["stdout"], &json!("[terse mode]")));
    assert!(plain["ctime"].is_string() && get("?.epoch=1").await?["ctime"].is_f64());
    assert!(plain.get("history").is_none() && get("?.details=1&.pretty=1").await?["history"].is_array());
    world.end().await
}

#[tokio::test]
async fn a_file_is_found_until_its_chunks_are_gone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, id) = (world.store(), ObjectId::new());
    let of = (TaskId(ObjectId::new()), StreamName::Stdout);
    store.put_output(id, of, Encoding::Text, &b"text"[..]).await?;
    let way = Held::at(&world, "tasks.chunks").await?;
    let removing = async { anyhow::Ok(way.store.delete_output(id).await?) };
    let meanwhile = async {
        way.reached().await?;
        world.file(id).await.context("whoever removed it may have died")?;
        way.release();
        anyhow::Ok(())
    };
    tokio::try_join!(removing, meanwhile)?;
    assert_eq!(world.chunks(id).await?.len(), 0);
    assert!(world.file(id).await.is_err());
    world.end().await
}
