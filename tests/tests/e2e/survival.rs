//! What dies, and what must not notice.

use std::time::Duration;

use bson::{Bson, DateTime, doc};
use disbatch_tests::{Script, World, always, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

const SLOW: Script<'_> = Script { name: "Slow", text: "#!/bin/sh\nsleep 3\necho \"done by $$\"\n" };

#[tokio::test]
async fn a_den_killed_while_twenty_tasks_run_disturbs_none() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SLOW, 20).await?;
    world.submit(queue, vec![doc! {}; 20]).await?;
    let den = world.den("n1")?;
    eventually("twenty running tasks", || async {
        Ok((world.count(queue, doc! { "status": 0 }).await? == 20).then_some(()))
    })
    .await?;
    den.end_with(Signal::SIGKILL).await?;
    let _successor = world.den("n1")?;
    let tasks = world.until_all_ended(queue).await?;
    for task in &tasks {
        assert_eq!(task.get_i32("status")?, 1);
        assert!(task.get_str("stdout")?.starts_with("done by "));
        assert!(task.get_bool("complete")?);
    }
    world.end().await
}

#[tokio::test]
async fn tasks_finish_without_any_den() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SLOW, 3).await?;
    let ids = world.submit(queue, vec![doc! {}; 3]).await?;
    let den = world.den("n1")?;
    for id in &ids {
        world.until_status(*id, 0).await?;
    }
    let status = den.end_with(Signal::SIGTERM).await?;
    assert!(status.success());
    assert_eq!(world.count(queue, doc! { "status": 0 }).await?, 3, "they run on");
    for id in ids {
        world.until_status(id, 1).await?;
    }
    world.end().await
}

/// A runner that never starts its task.
fn idle_runner(world: &World) -> anyhow::Result<serde_json::Value> {
    Script { name: "IdleRunner", text: "#!/bin/sh\nexec sleep 30\n" }.install(&world.plugins())?;
    Ok(json!({ "task_runner": world.plugins().join("IdleRunner/run") }))
}

#[tokio::test]
async fn sigterm_leaves_no_claimed_task_behind() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(SLOW, 4).await?;
    let mut config = idle_runner(&world)?;
    config["plugins"] = json!(["Slow"]);
    world.configure(config)?;
    world.submit(queue, vec![doc! {}; 4]).await?;
    let den = world.den("n1")?;
    eventually("four claimed tasks", || async {
        Ok((world.count(queue, doc! { "status": -1 }).await? == 4).then_some(()))
    })
    .await?;
    let status = den.end_with(Signal::SIGTERM).await?;
    assert!(status.success());
    assert_eq!(world.count(queue, doc! { "status": -2, "node": Bson::Null }).await?, 4);
    world.end().await
}

#[tokio::test]
async fn claims_older_than_five_minutes_are_orphaned_and_younger_ones_are_not() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let now = world.store().now().timestamp_millis();
    let ago = |seconds: i64| Bson::DateTime(DateTime::from_millis(now - seconds * 1000));
    let old = world.claimed(queue, doc! {}, "n1").await?;
    let old_integer = world.claimed(queue, doc! {}, "n1").await?;
    let young = world.claimed(queue, doc! {}, "n1").await?;
    let young_integer = world.claimed(queue, doc! {}, "n1").await?;
    let of_another_node = world.claimed(queue, doc! {}, "n2").await?;
    let running = world.claimed(queue, doc! {}, "n1").await?;
    let put_forward = world.claimed(queue, doc! {}, "n1").await?;
    world.set(old, doc! { "mtime": ago(301), "history": [{ "at": ago(301) }] }).await?;
    world.set(old_integer, doc! { "mtime": now / 1000 - 301, "history": Bson::Null }).await?;
    // The server's clock, by which the history goes, was not.
    world.set(put_forward, doc! { "mtime": ago(301), "history": [{ "at": ago(0) }] }).await?;
    world.set(young, doc! { "mtime": ago(200) }).await?;
    world.set(young_integer, doc! { "mtime": now / 1000 - 200 }).await?;
    world.set(of_another_node, doc! { "mtime": ago(1000) }).await?;
    world.set(running, doc! { "mtime": ago(1000), "status": 0 }).await?;
    let _den = world.den_at_work("n1").await?;
    for id in [old, old_integer] {
        let task = world.until_status(id, -6).await?;
        assert!(task.get_datetime("mtime")?.timestamp_millis() >= now, "the time of the change is kept");
        assert_eq!(task.get_str("node")?, "n1");
    }
    always("the others are left alone", Duration::from_secs(2), || async {
        let claimed = [young, young_integer, of_another_node, put_forward];
        let mut as_before = world.status(running).await? == 0;
        for id in claimed {
            as_before &= world.status(id).await? == -1;
        }
        Ok(as_before)
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn a_killed_runner_leaves_an_orphan_that_is_noticed_at_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    // Its parent is the guard, whose parent is the runner.
    let text = "#!/bin/sh\nread -r _ _ _ runner _ < /proc/$PPID/stat\nkill -9 $runner\nsleep 1000\n";
    let queue = world.script_queue(Script { name: "Regicide", text }, 1).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let den = world.den("n1")?;
    world.until_status(ids[0], -6).await?;
    eventually("a word about it", || async {
        Ok(den.log()?.contains("its runner died (killed by signal 9): orphaned").then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn a_runner_that_cannot_be_started_costs_no_task_and_no_spin() -> anyhow::Result<()> {
    let world = World::new().await?;
    let runner = world.path().join("missing-runner");
    world.configure(json!({ "task_runner": runner, "plugins": ["Disbatch::Plugin::Demo"] }))?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 5 }).await?;
    world.submit(queue, vec![doc! { "commands": "a", "noreport": 1 }; 5]).await?;
    let den = world.den("n1")?;
    let attempts = || anyhow::Ok(den.log()?.matches("cannot start a runner").count());
    eventually("the second attempt", || async { Ok((attempts()? >= 2).then_some(())) }).await?;
    always("the pauses grow", Duration::from_secs(4), || async { Ok(attempts()? <= 4) }).await?;
    eventually("all given back", || async {
        Ok((world.count(queue, doc! { "status": -2, "node": Bson::Null }).await? == 5).then_some(()))
    })
    .await?;
    let log = den.log()?;
    assert!(log.contains("missing-runner") && log.contains("No such file or directory"), "{log}");
    // It goes on by itself once the runner is there.
    std::os::unix::fs::symlink(disbatch_tests::binary("dtr")?, &runner)?;
    let tasks = world.until_all_ended(queue).await;
    // The plugin is found beside the real binary.
    assert!(tasks?.iter().all(|task| task.get_i32("status").unwrap() == 1), "{}", den.log()?);
    world.end().await
}

#[tokio::test]
async fn a_runner_that_fails_before_it_starts_its_task_gives_it_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    Script { name: "BadRunner", text: "#!/bin/sh\nexit 3\n" }.install(&world.plugins())?;
    let runner = world.plugins().join("BadRunner/run");
    world.configure(json!({ "task_runner": runner, "plugins": ["Disbatch::Plugin::Demo"] }))?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 1 }).await?;
    let ids = world.submit(queue, vec![doc! {}]).await?;
    let den = world.den("n1")?;
    eventually("a word about it", || async {
        Ok(den.log()?.contains("a runner ended without starting its task (exit status 3)").then_some(()))
    })
    .await?;
    eventually("the task to be queued again", || async {
        Ok((world.status(ids[0]).await? == -2).then_some(()))
    })
    .await?;
    world.end().await
}

#[tokio::test]
async fn a_runner_survives_the_loss_of_its_standard_error() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let id = world.claimed(queue, doc! { "commands": "ab", "noreport": 1 }, "n1").await?;
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let status = world.dtr_command(&id.to_string())?.args(["--node", "n1"]).stderr(writer).status().await?;
    assert_eq!(status.code(), Some(0));
    assert_eq!(world.status(id).await?, 1);
    world.end().await
}
