//! MongoDB goes away and comes back. Nothing is lost, nothing runs twice.

use std::time::Duration;

use bson::doc;
use disbatch_core::task::{CancelRequest, Cancelled};
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};
use disbatch_tests::{Script, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::timeout;

/// Starts a server of the test's own.
pub async fn start(data: &std::path::Path, port: Option<u16>) -> anyhow::Result<Server> {
    let program = tokio::task::spawn_blocking(|| locate::find_or_fetch(|_| ())).await??;
    let options = Options {
        program,
        data: data.to_owned(),
        port,
        replica_set: true,
        ephemeral: false,
        arguments: Vec::new(),
    };
    Server::start(options).await
}

#[tokio::test]
async fn tasks_that_end_while_the_database_is_dead_are_stored_when_it_is_back() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut server = start(data.path(), None).await?;
    let port = server.port();
    let world = World::at(server.uri()).await?;
    let runs = world.path().join("runs");
    let text = format!(
        "#!/bin/sh\necho $DISBATCH_TASK_ID >> {}\nuntil [ -e {} ]; do sleep 0.05; done\necho done\n",
        runs.display(),
        world.path().join("go").display()
    );
    let queue = world.script_queue(Script { name: "Patient", text: &text }, 3).await?;
    world.submit(queue, vec![doc! {}; 6]).await?;
    let den = world.den("n1")?;
    let count_runs = || std::fs::read_to_string(&runs).map(|text| text.lines().count()).unwrap_or(0);
    eventually("three running tasks", || async { Ok((count_runs() == 3).then_some(())) }).await?;

    kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGKILL)?;
    server.wait().await?;
    std::fs::write(world.path().join("go"), "")?;
    let complaints = || anyhow::Ok(den.log()?.matches("storing the result failed, trying again").count());
    eventually("all three runners to miss the database", || async { Ok((complaints()? >= 3).then_some(())) })
        .await?;
    drop(server);

    let server = start(data.path(), Some(port)).await?;
    let tasks = world.until_all_ended(queue).await?;
    for task in &tasks {
        assert_eq!(task.get_i32("status")?, 1, "{}", den.log()?);
        assert_eq!(task.get_str("stdout")?, "done\n");
    }
    assert_eq!(count_runs(), 6, "each ran once");
    den.end_with(Signal::SIGTERM).await?;
    server.stop().await
}

/// The database is away for longer than a lease: by policy, plugins go on or are stopped.
#[tokio::test]
async fn plugins_outlive_their_lease_or_not_as_their_queue_wants_it() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut server = start(data.path(), None).await?;
    let port = server.port();
    let world = World::at(server.uri()).await?;
    world.configure(serde_json::json!({ "lease": 3 }))?;
    let folder = world.path().display();
    let text = format!(
        "#!/bin/sh\necho \"$$\" > {folder}/$JOB_ID\nuntil [ -e {folder}/go ]; do sleep 0.05; done\necho done\n"
    );
    let keep = world.script_queue(Script { name: "Patient", text: &text }, 1).await?;
    let stop = world.queue("Patient", doc! { "threads": 1, "on_lost_lease": "stop" }).await?;
    let kept = world.submit(keep, vec![doc! {}]).await?[0];
    let stopped = world.submit(stop, vec![doc! {}]).await?[0];
    let _den = world.den("n1")?;
    let plugin = |task| {
        let file = world.path().join(format!("{task}"));
        move || -> Option<Pid> { std::fs::read_to_string(&file).ok()?.trim().parse().ok().map(Pid::from_raw) }
    };
    let (kept_plugin, stopped_plugin) = (plugin(kept), plugin(stopped));
    eventually("both to run", || async { Ok(kept_plugin().zip(stopped_plugin())) }).await?;
    let is_alive = |pid: Option<Pid>| pid.is_some_and(|pid| kill(pid, None).is_ok());

    kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGKILL)?;
    server.wait().await?;
    eventually("the one to be stopped", || async { Ok((!is_alive(stopped_plugin())).then_some(())) }).await?;
    assert!(is_alive(kept_plugin()), "the other goes on");
    std::fs::write(world.path().join("go"), "")?;
    eventually("the other to end", || async { Ok((!is_alive(kept_plugin())).then_some(())) }).await?;
    drop(server);

    let server = start(data.path(), Some(port)).await?;
    let task = world.until_status(kept, 1).await?;
    assert_eq!(task.get_str("stdout")?, "done\n", "delivered when the database was back");
    let task = world.until_status(stopped, -6).await?;
    assert!(!task.contains_key("slot"));
    server.stop().await
}

/// A runner whose DEN does not answer in time goes on without it, for good, although the DEN lives.
#[tokio::test]
async fn who_cancels_after_an_outage_does_not_wait_for_the_next_renewal() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = start(data.path(), None).await?;
    let world = World::at(server.uri()).await?;
    // The next renewal is many minutes away.
    world.configure(serde_json::json!({ "lease": 3600 }))?;
    let go = world.path().join("go");
    let text = format!(
        "#!/bin/sh\nuntil [ -e {} ]; do sleep 0.05; done\n\
        echo '{{\"progress\":{{\"percent\":50}}}}' >> \"/dev/fd/$DISBATCH_CONTROL_FD\"\nwhile :; do sleep 0.1; done\n",
        go.display()
    );
    let queue = world.script_queue(Script { name: "Half", text: &text }, 1).await?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let den = world.den("n1")?;
    world.until_status(id, 0).await?;
    let process = Pid::from_raw(i32::try_from(server.pid())?);
    kill(process, Signal::SIGSTOP)?;
    std::fs::write(go, "")?;
    eventually("the runner to give its DEN up", || async {
        Ok(den.log()?.contains("cannot go on with the help of the DEN").then_some(()))
    })
    .await?;
    kill(process, Signal::SIGCONT)?;
    let request = CancelRequest { by: "ann".to_owned(), reason: None };
    assert_eq!(world.store().cancel_task(id, &request).await?, Cancelled::Requested);
    world.until_status(id, -3).await?;
    den.end_with(Signal::SIGTERM).await?;
    server.stop().await
}

#[tokio::test]
async fn a_server_that_answers_and_writes_nothing_is_noticed() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = start(data.path(), None).await?;
    let world = World::at(server.uri()).await?;
    let (store, admin) = (world.store(), world.database().client().database("admin"));
    store.reach_majority().await?;
    admin.run_command(doc! { "fsync": 1, "lock": true }).await?;
    store.ping().await?;
    assert!(timeout(Duration::from_secs(1), store.reach_majority()).await.is_err());
    admin.run_command(doc! { "fsyncUnlock": 1 }).await?;
    store.reach_majority().await?;
    server.stop().await
}
