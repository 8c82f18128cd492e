//! Plugins that stop where they are when their node is to be empty, and go on elsewhere.

use std::time::Duration;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::{QueueId, Selector, TaskId};
use disbatch_core::node::{Draining, NodeChange};
use disbatch_core::task::CancelRequest;
use disbatch_tests::{Den, Script, World, always, eventually};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::commits::shown;

/// Says that it runs by the file `params.at`, and then does what `params.then` says: what it has been told to do, or something else.
const STANDING: &str = r#"#!/usr/bin/env python3
import json, os, signal, sys, time
task = json.load(sys.stdin)
then, attempt = task["params"]["then"], task["attempt"]
def say(**message):
    with os.fdopen(os.dup(int(os.environ["DISBATCH_CONTROL_FD"])), "w") as control:
        print(json.dumps(message), file=control)
def stop(*_):
    say(interrupted=True)
    sys.exit(3 if then == "fail" else 0)
if then != "die":
    signal.signal(signal.SIGTERM, stop)
say(storage=attempt)
if then == "say":
    say(interrupted=True)
    sys.exit(0)
open(task["params"]["at"] + str(attempt), "w").write(str(os.getppid()))
if attempt > 1:
    print("went on from", task.get("storage"))
    sys.exit(0)
time.sleep(600)
"#;

struct Scene {
    world: World,
    queue: QueueId,
}

impl Scene {
    /// One whose plugin can be interrupted, or cannot.
    async fn new(interruptible: bool) -> anyhow::Result<Self> {
        let world = World::new().await?;
        let script = Script { name: "Standing", text: STANDING };
        let manifest = json!({ "name": "Standing", "command": ["./run"], "interruptible": interruptible });
        script.install_as(&world.plugins(), &manifest)?;
        let queue = world.queue("Standing", doc! { "threads": 4, "max_attempts": 1 }).await?;
        Ok(Self { world, queue })
    }

    fn at(&self, attempt: u32) -> std::path::PathBuf {
        self.world.path().join(format!("at{attempt}"))
    }

    /// Submits one, and waits until it stands, if it does.
    async fn submit(&self, then: &str) -> anyhow::Result<TaskId> {
        let params = doc! { "then": then, "at": self.world.path().join("at").display().to_string() };
        let task = self.world.submit(self.queue, vec![params]).await?[0];
        if then != "say" {
            self.runner(1).await?;
        }
        Ok(task)
    }

    /// The process that has started the attempt.
    async fn runner(&self, attempt: u32) -> anyhow::Result<Pid> {
        eventually("the plugin to stand", || async {
            let text = std::fs::read_to_string(self.at(attempt)).unwrap_or_default();
            Ok(text.parse().ok().map(Pid::from_raw))
        })
        .await
    }

    async fn drain(&self, draining: Draining) -> anyhow::Result<()> {
        let change = NodeChange { draining: Some(draining), ..NodeChange::default() };
        let updated = self.world.store().update_node(&Selector::Name("n1".to_owned()), change).await?;
        updated.map(|_| ()).context("there is no n1")
    }

    /// Two DENs, of which the second has come after the task.
    async fn second(&self) -> anyhow::Result<Den> {
        self.world.den_at_work("n2").await
    }

    /// The task as it ended by its second attempt.
    async fn went_on(&self, task: TaskId, stdout: &str) -> anyhow::Result<Document> {
        let ended = self.world.until_status(task, 1).await?;
        assert_eq!((ended.get("attempt"), ended.get("node")), (Some(&Bson::Int32(2)), Some(&"n2".into())));
        assert_eq!((ended.get_str("stdout")?, ended.get("failures")), (stdout, None));
        let attempts = self.world.store().list_attempts(task).await?;
        assert_eq!((attempts.len(), attempts[0].get("status")), (1, Some(&Bson::Int32(-7))), "{attempts:?}");
        Ok(ended)
    }
}

#[tokio::test]
async fn a_plugin_goes_on_elsewhere_with_what_it_has_saved_and_at_no_cost() -> anyhow::Result<()> {
    for then in ["stop", "die"] {
        let scene = Scene::new(true).await?;
        let _first = scene.world.den_at_work("n1").await?;
        let task = scene.submit(then).await?;
        let _second = scene.second().await?;
        scene.drain(Draining::Interrupt).await?;
        let ended = scene.went_on(task, "went on from 1\n").await?;
        assert!(ended.to_string().contains("interrupted, to go on elsewhere"), "{ended}");
        scene.world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_the_page_shows_counts_on() -> anyhow::Result<()> {
    let world = World::new().await?;
    let folder = world.plugins().join("count");
    std::fs::create_dir_all(&folder)?;
    for file in ["plugin.json", "count.py"] {
        std::fs::write(folder.join(file), shown(&format!("count/{file}"))?)?;
    }
    std::fs::set_permissions(folder.join("count.py"), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let queue = world.queue("Count", doc! { "threads": 1 }).await?;
    let first = world.den_with("n1", &["--drain", "--interrupt"])?;
    let task = world.submit(queue, vec![doc! { "to": 500 }]).await?[0];
    world.until_status(task, 0).await?;
    eventually("some output", || async {
        let (stdout, _) = world.live(task, 1).await?;
        Ok((!stdout.is_empty()).then_some(()))
    })
    .await?;
    let _second = world.den_at_work("n2").await?;
    first.signal(Signal::SIGTERM)?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("node")?, "n2");
    let attempts = world.store().list_attempts(task).await?;
    let all = format!("{}{}", attempts[0].get_str("stdout")?, ended.get_str("stdout")?);
    let expected: String = (0..500).map(|n| format!("{n}\n")).collect();
    assert_eq!(all, expected, "each number once");
    eventually("the first DEN to end", || async {
        Ok(first.log()?.contains("ended; running").then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn who_cannot_is_left_alone() -> anyhow::Result<()> {
    let scene = Scene::new(false).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let task = scene.submit("stop").await?;
    scene.drain(Draining::Interrupt).await?;
    eventually("the task to be marked", || async {
        Ok(scene.world.task(task).await?.contains_key("interrupt").then_some(()))
    })
    .await?;
    let runs = || async { Ok(scene.world.status(task).await? == 0) };
    always("it runs", Duration::from_secs(2), runs).await?;
    scene.world.end().await
}

#[tokio::test]
async fn nobody_is_interrupted_by_a_plain_drain_or_by_itself() -> anyhow::Result<()> {
    let scene = Scene::new(true).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let saying = scene.submit("say").await?;
    let failed = scene.world.until_status(saying, 2).await?;
    assert!(failed.get_str("error")?.contains("nobody had told it to stop"), "{failed}");
    let task = scene.submit("stop").await?;
    scene.drain(Draining::Yes).await?;
    let runs = || async { Ok(scene.world.status(task).await? == 0) };
    always("it runs", Duration::from_secs(2), runs).await?;
    assert!(!scene.world.task(task).await?.contains_key("interrupt"));
    // The mark of an earlier attempt is nothing to a later one.
    scene.drain(Draining::Interrupt).await?;
    scene.world.until_status(task, -2).await?;
    scene.drain(Draining::No).await?;
    scene.world.until_status(task, 1).await?;
    scene.world.end().await
}

#[tokio::test]
async fn who_fails_when_told_to_stop_has_failed_and_who_is_cancelled_has_ended() -> anyhow::Result<()> {
    for (then, status) in [("fail", 2), ("stop", -3)] {
        let scene = Scene::new(true).await?;
        let _den = scene.world.den_at_work("n1").await?;
        let task = scene.submit(then).await?;
        if status == -3 {
            let request = CancelRequest { by: "ann".to_owned(), reason: None };
            scene.world.store().cancel_task(task, &request).await?;
        }
        scene.drain(Draining::Interrupt).await?;
        scene.world.until_status(task, status).await?;
        scene.world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn runners_of_an_earlier_den_are_told_too() -> anyhow::Result<()> {
    let scene = Scene::new(true).await?;
    let first = scene.world.den_at_work("n1").await?;
    let task = scene.submit("stop").await?;
    first.end_with(Signal::SIGKILL).await?;
    let _again = scene.world.den_at_work("n1").await?;
    let _second = scene.second().await?;
    scene.drain(Draining::Interrupt).await?;
    scene.went_on(task, "went on from 1\n").await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_runner_that_is_told_to_end_passes_it_on() -> anyhow::Result<()> {
    let scene = Scene::new(true).await?;
    let _first = scene.world.den_at_work("n1").await?;
    let task = scene.submit("stop").await?;
    let _second = scene.second().await?;
    scene.drain(Draining::Yes).await?;
    let runner = i32::try_from(scene.world.task(task).await?.get_i64("pid")?)?;
    // The first one has it take no other task.
    eventually("the runner to be told for the second time", || async {
        match kill(Pid::from_raw(runner), Signal::SIGTERM) {
            // It has handed its result to its DEN.
            Err(Errno::ESRCH) => return Ok(Some(())),
            told => told?,
        }
        Ok((scene.world.status(task).await? != 0).then_some(()))
    })
    .await?;
    scene.went_on(task, "went on from 1\n").await?;
    scene.world.end().await
}
