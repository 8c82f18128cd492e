//! Warm runners and their DEN: whoever dies between a result and its writing, nothing is lost and nothing twice.

use std::collections::BTreeSet;
use std::path::Path;

use bson::{Document, doc};
use disbatch_core::model::TaskId;
use disbatch_mongod::server::Server;
use disbatch_tests::{Den, Script, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::outage;

/// Notes that it runs, and waits for the file `go`.
pub fn patient(world: &World) -> String {
    let folder = world.path().display();
    format!(
        "#!/bin/sh\necho $DISBATCH_TASK_ID >> {folder}/runs\nuntil [ -e {folder}/go ]; do sleep 0.05; done\necho done\n"
    )
}

pub fn runs(world: &World) -> usize {
    std::fs::read_to_string(world.path().join("runs")).map_or(0, |text| text.lines().count())
}

pub fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
}

/// Tasks that run, and a database that stands still before their results are written.
async fn results_on_their_way(
    server: &Server,
    tasks: usize,
) -> anyhow::Result<(World, Den, Vec<TaskId>, Vec<u32>)> {
    let world = World::at(server.uri()).await?;
    let text = patient(&world);
    let queue = world.script_queue(Script { name: "Patient", text: &text }, i32::try_from(tasks)?).await?;
    let ids = world.submit(queue, vec![doc! {}; tasks]).await?;
    let den = world.den("n1")?;
    eventually("all to run", || async { Ok((runs(&world) == tasks).then_some(())) }).await?;
    let mut runners = Vec::new();
    for id in &ids {
        runners.push(u32::try_from(world.task(*id).await?.get_i64("pid")?)?);
    }
    signal(server.pid(), Signal::SIGSTOP)?;
    std::fs::write(world.path().join("go"), "")?;
    let arrived = || anyhow::Ok(den.log()?.matches("its runner has sent the result").count());
    eventually("all results to be with the DEN", || async { Ok((arrived()? == tasks).then_some(())) })
        .await?;
    Ok((world, den, ids, runners))
}

async fn all_stored_once(world: &World, ids: &[TaskId]) -> anyhow::Result<()> {
    for id in ids {
        let task = world.until_status(*id, 1).await?;
        assert_eq!(task.get_str("stdout")?, "done\n");
        assert_eq!(number(&task, "attempt"), Some(1));
        let ends =
            |entry: &&bson::Bson| entry.as_document().is_some_and(|entry| number(entry, "status") == Some(1));
        assert_eq!(task.get_array("history")?.iter().filter(ends).count(), 1, "stored once: {task}");
    }
    assert_eq!(runs(world), ids.len(), "each ran once");
    Ok(())
}

fn number(document: &Document, field: &str) -> Option<i64> {
    document.get(field).and_then(disbatch_core::model::whole_number)
}

#[tokio::test]
async fn a_den_killed_between_a_result_and_its_writing_loses_none() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = outage::start(data.path(), None).await?;
    let (world, den, ids, _) = results_on_their_way(&server, 6).await?;
    den.end_with(Signal::SIGKILL).await?;
    signal(server.pid(), Signal::SIGCONT)?;
    all_stored_once(&world, &ids).await?;
    drop(world);
    server.stop().await
}

#[tokio::test]
async fn a_runner_killed_before_its_result_is_acknowledged_has_delivered_it() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = outage::start(data.path(), None).await?;
    let (world, den, ids, runners) = results_on_their_way(&server, 6).await?;
    for runner in runners {
        signal(runner, Signal::SIGKILL)?;
    }
    signal(server.pid(), Signal::SIGCONT)?;
    all_stored_once(&world, &ids).await?;
    assert!(!den.log()?.contains("orphaned"), "{}", den.log()?);
    den.end_with(Signal::SIGTERM).await?;
    drop(world);
    server.stop().await
}

#[tokio::test]
async fn a_den_restarted_while_a_hundred_runners_run_disturbs_none() -> anyhow::Result<()> {
    const TASKS: usize = 100;
    let world = World::new().await?;
    let text = patient(&world);
    let queue = world.script_queue(Script { name: "Patient", text: &text }, i32::try_from(TASKS)?).await?;
    let ids = world.submit(queue, vec![doc! {}; TASKS + 10]).await?;
    let den = world.den("n1")?;
    eventually("a hundred to run", || async { Ok((runs(&world) == TASKS).then_some(())) }).await?;
    den.end_with(Signal::SIGKILL).await?;
    let _successor = world.den_at_work("n1").await?;
    std::fs::write(world.path().join("go"), "")?;
    all_stored_once(&world, &ids).await?;
    world.end().await
}

#[tokio::test]
async fn two_dens_on_a_host_keep_apart_and_one_may_die() -> anyhow::Result<()> {
    let world = World::new().await?;
    let text = patient(&world);
    let queue = world.script_queue(Script { name: "Patient", text: &text }, 8).await?;
    let ids = world.submit(queue, vec![doc! {}; 12]).await?;
    let first = world.den_at_work("n1").await?;
    let nodes = world.database().collection::<Document>("nodes");
    nodes.update_one(doc! { "node": "n1" }, doc! { "$set": { "maxthreads": 4 } }).await?;
    let _second = world.den_at_work("n2").await?;
    eventually("eight to run", || async { Ok((runs(&world) == 8).then_some(())) }).await?;
    assert_eq!(world.count(queue, doc! { "status": { "$in": [-1, 0] } }).await?, 8);
    first.end_with(Signal::SIGKILL).await?;
    std::fs::write(world.path().join("go"), "")?;
    all_stored_once(&world, &ids).await?;
    world.end().await
}

/// Its runner is the parent of its parent, the guard.
const TELLS_ITS_RUNNER: Script<'_> = Script {
    name: "Grandchild",
    text: "#!/bin/sh\nread -r _ _ _ runner _ < /proc/$PPID/stat\necho $runner\n",
};

#[tokio::test]
async fn runners_take_one_task_after_another_and_leave_when_there_are_no_more() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "runner_idle": 0.5 }))?;
    let queue = world.script_queue(TELLS_ITS_RUNNER, 3).await?;
    world.submit(queue, vec![doc! {}; 40]).await?;
    let den = world.den("n1")?;
    let tasks = world.until_all_ended(queue).await?;
    let runners: Result<BTreeSet<&str>, _> = tasks.iter().map(|task| task.get_str("stdout")).collect();
    let runners = runners?;
    // On a busy machine one may be idle for long enough to leave between two tasks.
    assert!(runners.len() <= 10, "40 tasks by {} runners", runners.len());
    let is_there = |runner: &&&str| Path::new("/proc").join(runner.trim()).exists();
    eventually("all but one to leave", || async {
        Ok((runners.iter().filter(is_there).count() <= 1).then_some(()))
    })
    .await?;
    den.end_with(Signal::SIGTERM).await?;
    eventually("the last to leave with its DEN", || async {
        Ok((runners.iter().filter(is_there).count() == 0).then_some(()))
    })
    .await?;
    world.end().await
}
