//! Perl modules with `new` and `run` are run as Perl Disbatch runs them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, doc};
use disbatch_core::model::{QueueId, Step, TaskId};
use disbatch_core::task::{CancelRequest, Cancelled, TaskOptions};
use disbatch_tests::{World, eventually};
use futures::TryStreamExt;
use nix::unistd::Uid;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::output::compare_file;

/// Where the modules of these tests are.
pub(super) fn library() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/perl/lib")
}

/// A world in which these modules are plugins.
async fn world_with(modules: &[&str]) -> anyhow::Result<World> {
    let world = World::new().await?;
    let plugins: serde_json::Map<String, Value> =
        modules.iter().map(|module| ((*module).to_owned(), json!(1))).collect();
    world.configure(json!({ "plugins": plugins, "engines": { "perl": { "lib": [library()] } } }))?;
    Ok(world)
}

/// Has a module do what `Habits` knows under this name.
async fn habit(world: &World, queue: QueueId, mut params: Document, name: &str) -> anyhow::Result<Document> {
    params.insert("do", name);
    world.run_by_hand(queue, params, &[]).await
}

fn text<'a>(task: &'a Document, field: &str) -> &'a str {
    task.get_str(field).unwrap_or_default()
}

#[tokio::test]
async fn every_recorded_result_is_stored_as_perl_stores_it() -> anyhow::Result<()> {
    let world = world_with(&["PeerPlugin"]).await?;
    let queue = world.queue("PeerPlugin", doc! {}).await?;
    let mut compared = 0;
    for line in include_str!("../../fixtures/plugin_results.jsonl").lines() {
        let row: Value = serde_json::from_str(line)?;
        let mode = row["mode"].as_str().context("a row without mode")?;
        let arguments: Vec<&str> =
            row["args"].as_array().context("args")?.iter().filter_map(Value::as_str).collect();
        if mode == "huge" && arguments.is_empty() {
            too_large_without_gridfs(&world, queue).await?;
        } else {
            let task = world.run_by_hand(queue, doc! { "mode": mode }, &arguments).await?;
            compare(&world, &task, &row).await.with_context(|| format!("{mode} {arguments:?}: {task}"))?;
        }
        compared += 1;
    }
    assert_eq!(compared, 33);
    world.end().await
}

/// Such a task ends well without its output, and its runner says so.
async fn too_large_without_gridfs(world: &World, queue: QueueId) -> anyhow::Result<()> {
    let id = world.claimed(queue, doc! { "mode": "huge" }, "n1").await?;
    let run = world.dtr(&id.to_string(), &["--node", "n1"]).await?;
    assert_eq!(run.code()?, 6, "{}", run.stderr);
    let task = world.task(id).await?;
    assert_eq!((task.get_i32("status")?, task.get_bool("complete")?), (1, false));
    assert_eq!(text(&task, "stderr"), "small");
    assert!(text(&task, "stdout").starts_with("Could not store 17825792 bytes of stdout"), "{task}");
    Ok(())
}

async fn compare(world: &World, task: &Document, row: &Value) -> anyhow::Result<()> {
    ensure!(task.get_bool("complete")?, "it is not complete");
    let status = Bson::from(task.get("status").cloned()).into_relaxed_extjson();
    if row["exit_code"] != json!(0) {
        // Perl's runner ended with its plugin, and the task ran for ever.
        ensure!(status == json!(2) && text(task, "stdout") == "Unable to complete");
        return Ok(());
    }
    ensure!(status == row["task"]["status"], "status {status}");
    for stream in ["stdout", "stderr"] {
        let here = task.get(stream).cloned().unwrap_or(Bson::Undefined);
        let recorded = &row["task"][stream];
        if recorded.get("$oid").is_none() {
            let here = without_addresses(&here.into_relaxed_extjson());
            ensure!(here == without_addresses(recorded), "{stream}: {here}");
            continue;
        }
        let id = here.as_object_id().with_context(|| format!("{stream} is no file: {here}"))?;
        let files = row["files"].as_array().context("files")?;
        let file = files.iter().find(|file| file["file"]["filename"] == *stream).context("no such file")?;
        if row["mode"] == "refout" {
            // Perl has stored the address of a hash and that of a list.
            let expected = if stream == "stdout" { r#"{"a":1}"# } else { "[1]" };
            let chunks = world.chunks(id).await?;
            ensure!(chunks.len() == 1 && text(&chunks[0], "data") == expected, "{stream}: {chunks:?}");
        } else {
            compare_file(world, task, id, file).await?;
        }
    }
    Ok(())
}

/// The same for all places in Perl's memory.
fn without_addresses(value: &Value) -> Value {
    let Some((before, rest)) = value.as_str().and_then(|text| text.split_once("(0x")) else {
        return value.clone();
    };
    let after = rest.split_once(')').map_or(rest, |(_, after)| after);
    json!(format!("{before}(0x){after}"))
}

#[tokio::test]
async fn modules_fork_print_and_leave_disorder_as_they_like() -> anyhow::Result<()> {
    let world = world_with(&["Habits"]).await?;
    let queue = world.queue("Habits", doc! {}).await?;
    for (name, stdout) in [
        ("fork", "1=1 2=2 3=3"),
        ("stray", "from the parent"),
        ("backticks", "from a program\n0"),
        ("bad_end", "done before the end"),
        ("crash", "done before the crash"),
        ("disorder", "disorder"),
        ("print", "returned"),
    ] {
        let task = habit(&world, queue, doc! {}, name).await?;
        assert_eq!((task.get_i32("status")?, text(&task, "stdout")), (1, stdout), "{name}: {task}");
        assert_eq!(task.get("stderr"), Some(&Bson::Null), "{name}: what it prints is not its result: {task}");
    }
    let task = habit(&world, queue, doc! {}, "own").await?;
    let own = task.get_document("stdout")?;
    assert_eq!(text(own, "id"), task.get_object_id("_id")?.to_hex());
    let time = own.get_array("list")?.first().and_then(Bson::as_str).context("no time")?;
    assert_eq!(DateTime::parse_rfc3339_str(time)?, *task.get_datetime("ctime")?, "{task}");
    let task = habit(&world, queue, doc! {}, "throw").await?;
    assert_eq!((task.get_i32("status")?, text(&task, "stdout")), (2, "Unable to complete"));
    assert_eq!(text(&task, "stderr"), "Thread has uncaught exception: an object: out of luck");
    let task = habit(&world, queue, doc! {}, "log").await?;
    assert!(text(&task, "stdout").starts_with("that is all at "), "{task}");
    world.end().await
}

/// Whatever its exit status is: it has given no result.
#[tokio::test]
async fn a_module_that_ends_the_process_has_failed_and_what_it_printed_says_why() -> anyhow::Result<()> {
    let world = world_with(&["Habits"]).await?;
    let queue = world.queue("Habits", doc! {}).await?;
    for code in [0, 3] {
        let task = habit(&world, queue, doc! { "code": code }, "exit").await?;
        assert_eq!((task.get_i32("status")?, text(&task, "stdout")), (2, "Unable to complete"), "{task}");
        assert!(text(&task, "stderr").contains("about to exit\n"), "{task}");
        assert_eq!(task.get_document("exit")?.get_i32("code")?, code);
    }
    world.end().await
}

#[tokio::test]
async fn modules_find_what_perls_runner_gives_them() -> anyhow::Result<()> {
    let world = world_with(&["Habits"]).await?;
    let queue = world.queue("Habits", doc! {}).await?;
    let task = habit(&world, queue, doc! {}, "surroundings").await?;
    let database = format!("database {} auto", world.database().name());
    let expected = [
        "class Disbatch",
        "node n1",
        "of habits",
        database.as_str(),
        "passwords ",
        "arguments 0",
        "input none",
        "module known",
        "driver not loaded",
    ];
    assert_eq!(text(&task, "stdout").lines().collect::<Vec<_>>(), expected);

    let task = habit(&world, queue, doc! { "yes": true, "no": false }, "types").await?;
    let lines: Vec<&str> = text(&task, "stdout").lines().collect();
    let id = task.get_object_id("_id")?;
    assert!(lines[1].starts_with(&format!("BSON::OID {id} {id} {id} {id} {id} 12 ")), "{task}");
    assert!(lines[1].ends_with("Z late boolean true false"), "{task}");
    assert_eq!(lines[0], "was not loaded");
    assert_eq!(lines[2..], ["stays so", "stored so", "the real class"], "{task}");

    let other = ObjectId::new();
    let bytes = Binary { subtype: BinarySubtype::Generic, bytes: b"bytes".to_vec() };
    let params = doc! { "values": [
        1, -2.5, "sn\u{f6}w \u{2603} \u{1f600}\n\"", Bson::Null, true, false, 5_000_000_000_i64, i64::MIN, i64::MAX,
        f64::NAN, DateTime::from_millis(-1500), DateTime::from_millis(1_795_163_067_344), other, bytes
    ] };
    let task = habit(&world, queue, params, "values").await?;
    let expected = format!(
        "1,-2.5,sn\u{f6}w \u{2603} \u{1f600}\n\",undef,1,0,5000000000,{},{},NaN,-1.5,1795163067.344,{other},bytes",
        i64::MIN,
        i64::MAX
    );
    assert_eq!(text(&task, "stdout"), expected);
    world.end().await
}

#[tokio::test]
async fn modules_that_know_our_runner_tell_it_more() -> anyhow::Result<()> {
    let world = world_with(&["Habits"]).await?;
    let queue = world.queue("Habits", doc! {}).await?;
    let task = habit(&world, queue, doc! {}, "control").await?;
    let id = task.get_object_id("_id")?;
    assert_eq!(text(&task, "stdout"), "1,1,1,1", "{task}");
    let progress = task.get_document("progress")?;
    assert_eq!(text(progress, "message"), "a quarter, \u{2603}");
    assert!((progress.get_f64("percent")? - 25.0).abs() < 1e-9, "{progress}");
    let result = task.get_document("result")?;
    assert_eq!(text(result, "by"), id.to_hex());
    assert_eq!(task.get("storage").cloned().map(Bson::into_relaxed_extjson), Some(json!({ "seen": [1, 2] })));
    let reports = world.database().collection::<Document>("reports");
    let report = reports.find_one(doc! { "task_id": id }).await?.context("no report")?;
    assert_eq!(report.get_datetime("at")?, task.get_datetime("ctime")?);
    world.end().await
}

#[tokio::test]
async fn modules_of_disbatch_3_and_those_that_cannot_be_loaded_are_told_apart() -> anyhow::Result<()> {
    let world = world_with(&["Bygone", "Broken", "Missing::One"]).await?;
    let queue = world.queue("Bygone", doc! {}).await?;
    let task = world.run_by_hand(queue, doc! { "user": "bob" }, &[]).await?;
    let id = task.get_object_id("_id")?;
    assert_eq!(text(&task, "stdout"), format!("bob of queue {queue} as {id} by bygone"), "{task}");

    for (module, why) in [("Broken", "Global symbol \"$undeclared\""), ("Missing::One", "Missing::One")] {
        let queue = world.queue(module, doc! {}).await?;
        let task = world.run_by_hand(queue, doc! {}, &[]).await?;
        assert_eq!((task.get_i32("status")?, text(&task, "stdout")), (2, "Unable to start"), "{task}");
        assert!(text(&task, "stderr").contains(why), "{task}");
    }
    world.end().await
}

/// The configuration of Perl Disbatch names modules, and `PERL5LIB` says where they are.
#[tokio::test]
async fn an_installation_of_perls_is_taken_over_with_its_modules() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "plugins": ["Classic"] }))?;
    let queue = world.queue("Classic", doc! { "threads": 2 }).await?;
    let users = ["ashley@example.com", "nobody@example.com"];
    let ids = world.submit(queue, users.map(|user| doc! { "user1": user }).to_vec()).await?;
    let library = library().display().to_string();
    let den = world.den_in("n1", &[], &[("PERL5LIB", library.as_str())])?;
    let moved = world.until_status(ids[0], 1).await.with_context(|| den.log().unwrap_or_default())?;
    let name = format!("q{queue}");
    assert_eq!(text(&moved, "stdout"), format!("queue {name}\nstatus 0\n"));
    assert_eq!(moved.get("stderr"), Some(&Bson::Null));
    let failed = world.until_status(ids[1], 2).await?;
    assert_eq!(text(&failed, "stderr"), "no such user\n");
    let reports: Vec<Document> = world
        .database()
        .collection::<Document>("reports")
        .find(doc! { "queue_id": queue })
        .sort(doc! { "user1": 1 })
        .await?
        .try_collect()
        .await?;
    assert_eq!(
        reports.iter().map(|report| text(report, "status")).collect::<Vec<_>>(),
        ["SUCCESS", "FAILED"]
    );
    assert_eq!(reports[0].get_object_id("task_id")?, ids[0].0);
    assert_eq!(reports[0].get_datetime("created")?, moved.get_datetime("ctime")?);
    // What it prints is for the log of its runner.
    eventually("what the module has printed", || async {
        Ok(den.log()?.contains("this is printed, and not in stdout").then_some(()))
    })
    .await?;
    world.end().await
}

/// The first block in this language of the documentation.
fn documented(language: &str) -> anyhow::Result<&'static str> {
    let text = include_str!("../../../docs/engines/perl.md");
    let (_, rest) = text.split_once(&format!("```{language}\n")).context("no such block")?;
    Ok(rest.split_once("```").context("a block without end")?.0)
}

#[tokio::test]
async fn the_example_of_the_documentation_runs() -> anyhow::Result<()> {
    let world = World::new().await?;
    let folder = world.plugins().join("mover");
    std::fs::create_dir_all(folder.join("lib/My"))?;
    std::fs::write(folder.join("plugin.json"), documented("json")?)?;
    std::fs::write(folder.join("lib/My/Mover.pm"), documented("perl")?)?;
    let queue = world.queue("My::Mover", doc! { "threads": 1 }).await?;
    let ids = world.submit(queue, vec![doc! { "user": "ashley" }]).await?;
    let den = world.den("n1")?;
    let task = world.until_status(ids[0], 1).await.with_context(|| den.log().unwrap_or_default())?;
    assert_eq!(text(&task, "stdout"), format!("ashley was moved for q{queue}\n"));
    let reports = world.database().collection::<Document>("reports");
    assert_eq!(reports.count_documents(doc! { "task_id": ids[0], "user": "ashley" }).await?, 1);
    world.end().await
}

#[tokio::test]
async fn a_module_of_a_manifest_can_be_cancelled() -> anyhow::Result<()> {
    let world = World::new().await?;
    let folder = world.plugins().join("waiting");
    std::fs::create_dir(&folder)?;
    std::os::unix::fs::symlink(library(), folder.join("lib"))?;
    let manifest =
        json!({ "name": "My::Wait", "engine": "perl", "perl": { "class": "Habits", "lib": ["lib"] } });
    std::fs::write(folder.join("plugin.json"), manifest.to_string())?;
    let queue = world.queue("My::Wait", doc! { "threads": 1 }).await?;
    let ids = world.submit(queue, vec![doc! { "do": "wait", "seconds": 1000 }]).await?;
    let den = world.den("n1")?;
    let waits = doc! { "_id": ids[0], "progress.message": "waiting" };
    let began =
        eventually("the module to run", || async { Ok(world.tasks().find_one(waits.clone()).await?) });
    began.await.with_context(|| den.log().unwrap_or_default())?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    assert_eq!(world.store().cancel_task(ids[0], &request).await?, Cancelled::Requested);
    let task = world.until_status(ids[0], -3).await?;
    assert_eq!(task.get_document("exit")?.get_i32("signal")?, 15, "{task}");
    world.end().await
}

#[tokio::test]
async fn the_answer_of_one_step_is_not_taken_for_that_of_the_next() -> anyhow::Result<()> {
    let world = world_with(&["Habits"]).await?;
    let queue = world.queue("Habits", doc! { "threads": 1 }).await?;
    let step = |name: &str, params: Document| Step { name: name.to_owned(), plugin: None, params };
    let steps = vec![
        step("one", doc! { "do": "print" }),
        step("two", doc! { "do": "exit", "code": 0 }),
        step("three", doc! { "do": "print" }),
    ];
    let options = TaskOptions { steps, ..TaskOptions::default() };
    let id = world.store().submit_tasks(queue, vec![doc! {}], &options).await?.ids[0];
    let den = world.den("n1")?;
    let task = world.until_status(id, 2).await.with_context(|| den.log().unwrap_or_default())?;
    let statuses: Vec<i32> = task
        .get_array("steps")?
        .iter()
        .filter_map(|step| step.as_document()?.get_i32("status").ok())
        .collect();
    assert_eq!(statuses[..2], [1, 2], "{task}");
    assert_ne!(statuses[2], 1, "{task}");
    world.end().await
}

#[tokio::test]
async fn a_module_is_loaded_and_nothing_left_where_somebody_else_has_the_place_of_the_harness()
-> anyhow::Result<()> {
    let world = world_with(&["PeerPlugin"]).await?;
    let queue = world.queue("PeerPlugin", doc! {}).await?;
    let hash = Sha256::digest(include_bytes!("../../../plugins/perl/disbatch-perl.pl"));
    let hash: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let folder = world.path().join("tmp");
    // As a file of somebody else, a folder cannot be replaced.
    std::fs::create_dir_all(folder.join(format!("disbatch-perl-{}-{hash}.pl", Uid::effective())))?;
    for _ in 0..2 {
        let id = world.claimed(queue, doc! { "mode": "ok" }, "n1").await?;
        let mut run = world.dtr_command(&id.to_string())?;
        let ended = run.args(["--node", "n1"]).env("TMPDIR", &folder).output().await?;
        let task = world.task(id).await?;
        assert_eq!((task.get_i32("status")?, text(&task, "stdout")), (1, "out"), "{task} {ended:?}");
        assert_eq!(std::fs::read_dir(&folder)?.count(), 1);
    }
    world.end().await
}

/// Loading a parser of JSON would take longer than all of it, and the driver fifty times as long.
#[tokio::test]
async fn a_module_that_does_not_use_the_database_is_loaded_without_what_takes_long() -> anyhow::Result<()> {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/perl/disbatch-perl.pl");
    let task = json!({
        "_id": { "$oid": TaskId(ObjectId::new()).to_string() }, "status": 0,
        "ctime": { "$date": "2026-11-20T08:24:27.344Z" }, "params": { "mode": "ok", "list": [1, "two", null, 4.5] },
    });
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join("Loaded.pm"),
        "END { print STDERR \"$_\\n\" for sort keys %INC } 1;\n",
    )?;
    let mut perl = Command::new("perl");
    perl.arg("-I").arg(folder.path()).arg("-MLoaded").arg(harness);
    perl.arg("--class").arg("PeerPlugin").arg("--lib").arg(library());
    perl.env("DISBATCH_NODE", "n1").env_remove("DISBATCH_WORK_DIR");
    perl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = perl.spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(format!("{task}\n").as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    // Without a private folder it is tried by hand.
    let answer = String::from_utf8(output.stdout)?;
    assert_eq!(answer, "{\"raw\":true,\"status\":1,\"stderr\":null,\"stdout\":\"out\"}\n");
    let loaded = String::from_utf8(output.stderr)?;
    assert!(loaded.lines().any(|module| module == "PeerPlugin.pm"), "{loaded}");
    for slow in ["JSON", "MongoDB", "BSON", "Moo", "Type", "Log/Log4perl", "DateTime", "POSIX"] {
        let is_slow = |module: &str| {
            module.strip_suffix(".pm") == Some(slow) || module.starts_with(&format!("{slow}/"))
        };
        assert!(!loaded.lines().any(is_slow), "{slow} is loaded: {loaded}");
    }
    Ok(())
}
