//! Bad input gets one line that says what is wrong, and a documented exit code.

use std::process::Stdio;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, doc};
use disbatch_core::model::{QueueId, Status};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Dci, Script, World, binary, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::process::Command;

async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<(i32, String)> {
    let output = Command::new(binary(program)?).args(arguments).stdin(Stdio::null()).output().await?;
    let code = output.status.code().unwrap_or(-1);
    Ok((code, String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn missing_and_broken_configurations_are_one_line_and_exit_3() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let cases = [
        (None, "cannot read configuration"),
        (Some("{ \"mongohost\": "), "cannot parse configuration"),
        (Some("{}"), "mongohost and database: must be defined"),
        (
            Some("{ \"mongohost\": \"h\", \"database\": \"d\", \"gfs\": 5 }"),
            "gfs: expected \"auto\", true or false, got 5",
        ),
        (Some("[]"), "expected an object"),
        (Some("{ \"mongohost\": \"mongodb://h:99999\", \"database\": \"d\" }"), "port"),
    ];
    for (number, (text, reason)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.json"));
        if let Some(text) = text {
            std::fs::write(&path, text)?;
        }
        let path = path.to_str().unwrap_or_default();
        for (program, arguments) in [
            ("den", vec!["--config", path]),
            ("dci", vec!["--config", path]),
            ("dtr", vec!["--config", path, "--task", "6b0003bb686c8275d70dc2f1"]),
        ] {
            let (code, stderr) = run(program, &arguments).await?;
            assert!(stderr.starts_with(&format!("{program}: ")), "{stderr}");
            assert!(stderr.contains(reason), "{program} {reason}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
            assert_eq!(code, 3, "{program}: {stderr}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_task_id_that_is_none_exits_2() -> anyhow::Result<()> {
    let (code, stderr) = run("dtr", &["--task", "zzz"]).await?;
    assert_eq!((code, &*stderr), (2, "dtr: --task: 'zzz' is not an id: expected 24 hexadecimal digits\n"));
    let (code, _) = run("dtr", &["--gfs", "sometimes", "--task", "6b0003bb686c8275d70dc2f1"]).await?;
    assert_eq!(code, 2);
    let (code, _) = run("den", &["--bogus"]).await?;
    assert_eq!(code, 2);
    Ok(())
}

#[tokio::test]
async fn an_unwritable_folder_is_one_line_and_exit_5_and_the_task_is_left() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", bson::doc! {}).await?;
    let id = world.claimed(queue, bson::doc! {}, "n1").await?;
    let output = world
        .dtr_command(&id.to_string())?
        .args(["--node", "n1"])
        .env("TMPDIR", "/nonexistent/folder")
        .output()
        .await?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(
        stderr.starts_with("dtr: cannot make a private folder for the task in /nonexistent/folder: "),
        "{stderr}"
    );
    assert_eq!(world.status(id).await?, -1, "its DEN gives it back");
    world.end().await
}

#[tokio::test]
async fn an_unreachable_database_is_waited_for() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.json");
    // Nothing listens on a port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    std::fs::write(&config, format!(r#"{{"mongohost": "127.0.0.1:{port}", "database": "d"}}"#))?;
    let log = folder.path().join("log");
    let mut den = Command::new(binary("den")?)
        .arg("--config")
        .arg(&config)
        .stderr(std::fs::File::create(&log)?)
        .kill_on_drop(true)
        .spawn()?;
    let said = || anyhow::Ok(std::fs::read_to_string(&log)?.matches("cannot reach MongoDB").count());
    eventually("two complaints", || async { Ok((said()? >= 2).then_some(())) }).await?;
    let text = std::fs::read_to_string(&log)?;
    assert!(text.contains(&format!("127.0.0.1:{port}")) && text.contains("retry_in_s"), "{text}");
    assert!(den.try_wait()?.is_none(), "it keeps running");
    kill(Pid::from_raw(i32::try_from(den.id().unwrap_or(0))?), Signal::SIGTERM)?;
    assert!(den.wait().await?.success());
    Ok(())
}

/// Prints its params, which are its result too.
const PRINTER: Script<'_> = Script {
    name: "Printer",
    text: r#"#!/usr/bin/env python3
import json, os, sys
params = json.load(sys.stdin)["params"]
print(json.dumps(params, sort_keys=True))
print(json.dumps({"result": {"params": params}}), file=os.fdopen(3, "w"))
"#,
};

#[tokio::test]
async fn params_that_look_like_extended_json_are_given_as_they_are() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(PRINTER, 2).await?;
    let params = [
        doc! { "a": { "$oid": "q1" } },
        doc! { "$date": "never" },
        doc! { "list": [{ "$numberLong": 5 }, { "$binary": {} }] },
        doc! { "a": { "$oid": "6b0003bb686c8275d8013333" } },
    ];
    let store = world.store();
    // A queue whose very name looks so is in nobody's way.
    store
        .insert_queue(doc! { "_id": QueueId(ObjectId::new()), "name": { "$oid": "q1" }, "plugin": "Printer" })
        .await?;
    let submitted = store.submit_tasks(queue, params.to_vec(), &TaskOptions::default()).await?;
    let _den = world.den_at_work("node1").await?;
    for (id, params) in submitted.ids.into_iter().zip(params) {
        eventually("its end", async || {
            let task = store.find_task(id).await?.context("it is there")?;
            Ok(task.status.has_ended().then_some(()))
        })
        .await?;
        let task = store.find_task(id).await?.context("it is there")?;
        let printed: serde_json::Value =
            serde_json::from_str(task.stdout.as_ref().and_then(Bson::as_str).context("no output")?)?;
        assert_eq!(printed, serde_json::to_value(&params)?, "{task:?}");
        assert_eq!(task.rest.get_document("result")?, &doc! { "params": &params });
        assert_eq!((task.status, task.params), (Status::Succeeded, Some(params.into())));
    }
    world.end().await
}

#[tokio::test]
async fn a_queue_has_no_name_that_is_shown_otherwise_than_it_is_written() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let plain = json!({ "name": "plain", "plugin": "Disbatch::Plugin::Demo" });
    dci.posted("/queues", &plain).await?;
    for odd in ["liam\u{202e}gnp", "a\u{1b}[2J", "a\nb", "a\u{200b}b"] {
        let named = json!({ "name": odd, "plugin": "Disbatch::Plugin::Demo" });
        for (path, body) in [("/queues", named), ("/queues/plain", json!({ "name": odd }))] {
            let (status, answer) = dci.post(path, &body).await?;
            let why = answer["error"].as_str().unwrap_or_default();
            assert!(
                status == 400 && why.starts_with("name must not have the character U+"),
                "{path} {answer}"
            );
        }
    }
    dci.posted("/queues/plain", &json!({ "name": "مال é \u{1f468}\u{200d}\u{1f469}" })).await?;
    world.end().await
}
