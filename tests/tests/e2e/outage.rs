//! MongoDB goes away and comes back. Nothing is lost, nothing runs twice.

use bson::doc;
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};
use disbatch_tests::{Script, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

async fn start(data: &std::path::Path, port: Option<u16>) -> anyhow::Result<Server> {
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
