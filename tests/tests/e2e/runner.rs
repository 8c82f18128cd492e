//! The runner on its own, as a person or a Perl DEN starts it.

use bson::{Bson, Document, doc};
use disbatch_tests::{Script, World};

#[tokio::test]
async fn a_task_that_is_not_claimed_for_this_node_is_not_touched() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let elsewhere = world.claimed(queue, doc! {}, "n2").await?;
    let queued = world.submit(queue, vec![doc! {}]).await?[0];
    let running = world.claimed(queue, doc! {}, "n1").await?;
    world.set(running, doc! { "status": 0 }).await?;
    let unknown = "000000000000000000000000".parse()?;
    for id in [elsewhere, queued, running, unknown] {
        let before = world.tasks().find_one(doc! { "_id": id }).await?;
        let run = world.dtr(&id.to_string(), &["--node", "n1"]).await?;
        assert_eq!(run.code()?, 1);
        assert_eq!(run.stderr, format!("dtr: no task {id} is claimed for node n1; nothing was touched\n"));
        assert_eq!(world.tasks().find_one(doc! { "_id": id }).await?, before);
    }
    world.end().await
}

#[tokio::test]
async fn tasks_that_cannot_start_say_so_as_perl_does() -> anyhow::Result<()> {
    let world = World::new().await?;
    let missing = world.queue("No::Such", doc! {}).await?;
    let illegal = world.queue("bad plugin;", doc! {}).await?;
    let none = world.queue("", doc! {}).await?;
    let gone = bson::oid::ObjectId::new().into();
    let cases = [
        (missing, "plugin No::Such is not installed on this node".to_owned()),
        (
            illegal,
            "plugin value 'bad plugin;' must be a valid perl package name, matching /^[\\w:]+$/".to_owned(),
        ),
        (none, format!("in queue {none}")),
        (gone, format!("in queue {gone}")),
    ];
    for (queue, reason) in cases {
        let task = world.run_by_hand(queue, doc! { "a": 1 }, &["--quiet"]).await?;
        assert_eq!(task.get_i32("status")?, 2);
        assert_eq!(task.get_str("stdout")?, "Unable to start");
        let stderr = task.get_str("stderr")?;
        assert!(stderr.contains(&reason), "{stderr}");
        assert!(task.get_bool("complete")?);
    }
    world.end().await
}

#[tokio::test]
async fn a_person_sees_what_came_out() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let id = world.claimed(queue, doc! { "commands": "a", "noreport": 1 }, "n1").await?;
    let run = world.dtr(&id.to_string(), &["--node", "n1"]).await?;
    assert!(run.stderr.contains("STDOUT: This is command 'a' for apple.\nSTDERR: null\n"), "{}", run.stderr);
    let id = world.claimed(queue, doc! { "commands": "a", "noreport": 1 }, "n1").await?;
    let run = world.dtr(&id.to_string(), &["--node", "n1", "--quiet"]).await?;
    assert_eq!(run.stderr, "");
    world.end().await
}

#[tokio::test]
async fn the_exec_contract_holds() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = r#"#!/usr/bin/env python3
import json, os, sys
task = json.load(sys.stdin)
control = os.fdopen(int(os.environ["DISBATCH_CONTROL_FD"]), "w")
def say(**message):
    control.write(json.dumps(message) + "\n"); control.flush()
say(progress={"percent": 50, "message": "half"})
say(result={"id": task["_id"], "count": 7})
say(report={"task_id": task["_id"], "ok": True})
say(status=5)
print(json.dumps({
    "params": task["params"], "status": task["status"],
    "env": {key: value for key, value in os.environ.items() if key.startswith(("DISBATCH_", "JOB_"))},
    "cwd": os.getcwd(), "files": os.listdir("."), "group": os.getpgrp() == os.getpid(),
}))
"#;
    let queue = world.script_queue(Script { name: "Contract", text }, 1).await?;
    let task = world.run_by_hand(queue, doc! { "x": [1, 2.5, "☃"] }, &["--quiet"]).await?;
    let id = task.get_object_id("_id")?;
    assert_eq!(task.get_i32("status")?, 5, "{task}");
    assert_eq!(task.get_document("result")?, &doc! { "id": id, "count": 7 });
    let progress = task.get_document("progress")?;
    assert_eq!((progress.get_f64("percent")?, progress.get_str("message")?), (50.0, "half"));
    let report = world.database().collection::<Document>("reports").find_one(doc! { "task_id": id }).await?;
    assert!(report.unwrap().get_bool("ok")?);
    let seen: serde_json::Value = serde_json::from_str(task.get_str("stdout")?)?;
    assert_eq!(seen["params"], serde_json::json!({ "x": [1, 2.5, "☃"] }));
    assert_eq!(seen["status"], 0);
    assert_eq!(seen["group"], true, "a process group of its own");
    assert_eq!(seen["files"], serde_json::json!([]), "an empty private folder");
    assert!(!std::path::Path::new(seen["cwd"].as_str().unwrap()).exists(), "removed afterwards");
    let env = &seen["env"];
    assert_eq!(env["DISBATCH_TASK_ID"], id.to_string());
    assert_eq!(env["JOB_ID"], id.to_string());
    assert_eq!(env["DISBATCH_QUEUE_ID"], queue.to_string());
    assert_eq!(env["DISBATCH_PLUGIN"], "Contract");
    assert_eq!(env["DISBATCH_NODE"], "n1");
    assert_eq!(env["JOB_PARAMS"], r#"{"x":[1,2.5,"☃"]}"#);
    assert_eq!(task.get("stderr"), Some(&Bson::Null));
    world.end().await
}

#[tokio::test]
async fn a_plugin_killed_by_a_signal_fails_and_the_signal_is_named() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho '{\"status\":1}' >&3\nprintf before\nprintf oops >&2\nkill -SEGV $$\n";
    let queue = world.script_queue(Script { name: "Crash", text }, 1).await?;
    let task = world.run_by_hand(queue, doc! {}, &[]).await?;
    assert_eq!(task.get_i32("status")?, 2);
    assert_eq!(task.get_str("stdout")?, "before");
    let stderr = task.get_str("stderr")?;
    assert!(stderr.starts_with("oops\nPlugin killed by signal 11 (SIGSEGV"), "{stderr}");
    world.end().await
}

#[tokio::test]
async fn grandchildren_that_hold_the_pipes_do_not_hang_the_task() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho started\nsleep 600 &\necho $! > \"$(dirname \"$0\")/pid\"\nexit 0\n";
    let queue = world.script_queue(Script { name: "Parent", text }, 1).await?;
    let task = world.run_by_hand(queue, doc! {}, &[]).await?;
    assert_eq!(task.get_i32("status")?, 1);
    assert_eq!(task.get_str("stdout")?, "started\n");
    let stderr = task.get_str("stderr")?;
    assert!(stderr.contains("a process that outlived the plugin holds its output open"), "{stderr}");
    let pid: i32 = std::fs::read_to_string(world.plugins().join("Parent/pid"))?.trim().parse()?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)?;
    world.end().await
}

#[tokio::test]
async fn rubbish_on_the_control_channel_is_noted_and_harmless() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = "#!/bin/sh\necho nope >&3\necho '{\"stauts\": 1}' >&3\necho '{\"result\": {\"a.b\": 1, \"$c\": 2}}' >&3\n";
    let queue = world.script_queue(Script { name: "Rubbish", text }, 1).await?;
    let task = world.run_by_hand(queue, doc! {}, &[]).await?;
    assert_eq!(task.get_i32("status")?, 1, "{task}");
    let stderr = task.get_str("stderr")?;
    assert!(stderr.contains("a control line is no JSON object"), "{stderr}");
    assert!(stderr.contains("control key 'stauts' is unknown"), "{stderr}");
    world.end().await
}

#[tokio::test]
async fn a_task_that_was_taken_away_is_not_overwritten() -> anyhow::Result<()> {
    let world = World::new().await?;
    let ready = world.path().join("ready");
    let go = world.path().join("go");
    let text = format!(
        "#!/bin/sh\ntouch {}\nuntil [ -e {} ]; do sleep 0.05; done\nhead -c 17000000 /dev/zero | tr '\\0' x\n",
        ready.display(),
        go.display()
    );
    let queue = world.script_queue(Script { name: "Held", text: &text }, 1).await?;
    let id = world.claimed(queue, doc! {}, "n1").await?;
    let child = world
        .dtr_command(&id.to_string())?
        .args(["--node", "n1", "--gfs", "auto"])
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    disbatch_tests::eventually("the plugin to run", || async { Ok(ready.exists().then_some(())) }).await?;
    world.set(id, doc! { "status": -6 }).await?;
    let before = world.task(id).await?;
    std::fs::write(go, "")?;
    let output = child.wait_with_output().await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("its result is discarded"));
    assert_eq!(world.task(id).await?, before);
    let files = world.database().collection::<Document>("tasks.files").count_documents(doc! {}).await?;
    let chunks = world.database().collection::<Document>("tasks.chunks").count_documents(doc! {}).await?;
    assert_eq!((files, chunks), (0, 0), "what it had uploaded is removed");
    world.end().await
}
