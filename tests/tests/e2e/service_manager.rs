//! What a service manager is told over its socket, as systemd gives one to its services; and the questions after health.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_tests::{Dci, Den, PATIENCE, Script, World, always, binary, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::Method;
use serde_json::json;
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::outage;
use crate::wake::{fail, fallible};

/// How long a process may take until it says that it goes on, in microseconds.
const WATCHDOG: &str = "1000000";

/// For so long nothing comes from a process that stands still: several times what it may take.
const SILENCE: Duration = Duration::from_secs(3);

/// Prints what it knows of the service manager, and goes on until this file is there.
fn nosy(go: &Path) -> String {
    let go = go.display();
    format!(
        "#!/bin/sh\nenv | grep -E '^(NOTIFY|WATCHDOG)_' | sort\nuntil [ -e {go} ]; do sleep 0.05; done\n\
         echo done\n"
    )
}

/// The manager's end.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    lines: VecDeque<String>,
}

impl Manager {
    fn listen(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let path = folder.join(name);
        Ok(Self { socket: UnixDatagram::bind(&path)?, path, lines: VecDeque::new() })
    }

    fn variables(&self) -> anyhow::Result<[(&str, &str); 2]> {
        Ok([("NOTIFY_SOCKET", self.path.to_str().context("odd path")?), ("WATCHDOG_USEC", WATCHDOG)])
    }

    /// What is told next.
    async fn next(&mut self) -> anyhow::Result<String> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Ok(line);
            }
            let mut buffer = [0; 4096];
            let read =
                timeout(PATIENCE, self.socket.recv(&mut buffer)).await.context("nothing is told")??;
            let text = String::from_utf8(buffer[..read].to_vec())?;
            self.lines.extend(text.lines().map(str::to_owned));
        }
    }

    /// Waits until this is told, and tells what was before.
    async fn until(&mut self, line: &str) -> anyhow::Result<Vec<String>> {
        let mut before = Vec::new();
        loop {
            match self.next().await? {
                told if told == line => return Ok(before),
                other => before.push(other),
            }
        }
    }

    /// Forgets what has been told so far.
    fn forget(&mut self) {
        let mut buffer = [0; 4096];
        self.lines.clear();
        while self.socket.try_recv(&mut buffer).is_ok() {}
    }

    async fn is_silent(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; 4096];
        always("nothing is told", SILENCE, || {
            let is_silent = self.socket.try_recv(&mut buffer).is_err();
            async move { Ok(is_silent) }
        })
        .await
    }

    /// It goes on, not while it is stopped, and then again.
    async fn watch(&mut self, process: u32) -> anyhow::Result<()> {
        for _ in 0..3 {
            self.until("WATCHDOG=1").await?;
        }
        let process = Pid::from_raw(i32::try_from(process)?);
        kill(process, Signal::SIGSTOP)?;
        let status = format!("/proc/{process}/status");
        eventually("the process to stand still", || async {
            Ok(std::fs::read_to_string(&status)?.contains("State:\tT").then_some(()))
        })
        .await?;
        self.forget();
        self.is_silent().await?;
        kill(process, Signal::SIGCONT)?;
        self.until("WATCHDOG=1").await?;
        Ok(())
    }
}

fn dci(config: &Path, log: &Path, variables: &[(&str, &str)]) -> anyhow::Result<Child> {
    let mut command = Command::new(binary("dci")?);
    command.arg("--config").arg(config).args(["--listen", "127.0.0.1:0"]);
    command.envs(variables.iter().copied()).stdin(Stdio::null()).stderr(std::fs::File::create(log)?);
    Ok(command.kill_on_drop(true).spawn()?)
}

/// The environment of the runner of a task.
fn environment(process: i64) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{process}/environ"))?).into_owned())
}

#[tokio::test]
async fn a_den_tells_how_it_gets_on_and_its_runners_do_not() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "plugin_environment": ["*"] }))?;
    let go = world.path().join("go");
    let queue = world.script_queue(Script { name: "Nosy", text: &nosy(&go) }, 1).await?;
    let mut manager = Manager::listen(world.path(), "notify")?;
    let den: Den = world.den_in("n1", &[], &manager.variables()?)?;
    let before = manager.until("READY=1").await?;
    assert!(before.contains(&"STATUS=waits for the database".to_owned()), "{before:?}");
    manager.watch(den.process()?).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let runner = eventually("its runner", || async {
        Ok(world.task(task).await?.get("pid").and_then(disbatch_core::model::whole_number))
    })
    .await?;
    let known = environment(runner)?;
    std::fs::write(&go, "")?;
    let task = world.until_status(task, 1).await?;
    assert_eq!(task.get_str("stdout")?, "done\n", "a plugin knows of the service manager");
    assert!(known.contains("PATH=") && !known.contains("NOTIFY_") && !known.contains("WATCHDOG_"), "{known}");
    den.end_with(Signal::SIGTERM).await?;
    manager.until("STOPPING=1").await?;
    world.end().await
}

#[tokio::test]
async fn a_den_that_stays_for_its_tasks_asks_for_time() -> anyhow::Result<()> {
    let world = World::new().await?;
    let go = world.path().join("go");
    let queue = world.script_queue(Script { name: "Nosy", text: &nosy(&go) }, 1).await?;
    let mut manager = Manager::listen(world.path(), "notify")?;
    let den = world.den_in("n1", &["--drain"], &manager.variables()?[..1])?;
    manager.until("READY=1").await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 0).await?;
    den.signal(Signal::SIGTERM)?;
    manager.until("STOPPING=1").await?;
    for _ in 0..3 {
        manager.until("EXTEND_TIMEOUT_USEC=180000000").await?;
    }
    std::fs::write(&go, "")?;
    eventually("it to end", || {
        // What is told to a manager that does not listen waits.
        manager.forget();
        let log = den.log();
        async move { Ok(log?.contains("ended; running tasks").then_some(())) }
    })
    .await?;
    assert_eq!(world.status(task).await?, 1);
    world.end().await
}

#[tokio::test]
async fn a_den_is_ready_when_it_has_looked_at_the_database() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut server = outage::start(data.path(), None).await?;
    let port = server.port();
    let world = World::at(server.uri()).await?;
    kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGKILL)?;
    server.wait().await?;
    let mut manager = Manager::listen(world.path(), "notify")?;
    let den = world.den_in("n1", &[], &manager.variables()?)?;
    eventually("the DEN to miss the database", || async {
        Ok(den.log()?.contains("cannot work with the database").then_some(()))
    })
    .await?;
    assert_eq!(manager.next().await?, "STATUS=waits for the database");
    manager.is_silent().await?;
    drop(server);

    let mut server = outage::start(data.path(), Some(port)).await?;
    manager.until("READY=1").await?;
    // Nobody would be helped if it were started again when the database is away.
    kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGKILL)?;
    server.wait().await?;
    eventually("the DEN to miss it again", || async {
        Ok((den.log()?.matches("cannot work with the database").count() > 1).then_some(()))
    })
    .await?;
    manager.forget();
    for _ in 0..3 {
        manager.until("WATCHDOG=1").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_den_tells_that_it_waits_for_indexes() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = fallible(data.path()).await?;
    let world = World::at(server.uri()).await?;
    let slow = doc! {
        "failCommands": ["createIndexes"], "appName": "disbatchd", "blockConnection": true, "blockTimeMS": 6_000,
    };
    fail(&world, doc! { "times": 1 }, slow).await?;
    let mut manager = Manager::listen(world.path(), "notify")?;
    let den = world.den_in("n1", &[], &manager.variables()?)?;
    let before = manager.until("STATUS=makes sure of the indexes").await?;
    assert!(!before.contains(&"READY=1".to_owned()), "{before:?}");
    let log = den.log()?;
    assert!(log.contains("this node claims nothing before they are there"), "{log}");
    manager.until("READY=1").await?;
    world.end().await?;
    server.stop().await
}

#[tokio::test]
async fn a_dci_tells_how_it_gets_on() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut manager = Manager::listen(world.path(), "notify")?;
    let mut child = dci(&world.config(), &world.path().join("dci.log"), &manager.variables()?)?;
    manager.until("READY=1").await?;
    let process = child.id().context("it has ended")?;
    manager.watch(process).await?;
    kill(Pid::from_raw(i32::try_from(process)?), Signal::SIGTERM)?;
    manager.until("STOPPING=1").await?;
    ensure!(timeout(PATIENCE, child.wait()).await??.success());
    world.end().await
}

async fn ask(dci: &Dci, path: &str, host: &str) -> anyhow::Result<(u16, String)> {
    let answer = dci.request(Method::GET, path).header("host", host).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

#[tokio::test]
async fn everybody_may_ask_a_dci_whether_it_is_well() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut server = outage::start(data.path(), None).await?;
    let world = World::at(server.uri()).await?;
    let hash = disbatch_core::accounts::PasswordHash::of("correct horse battery")?;
    world.store().add_user(&"robin".parse()?, None, &[], Some(&hash)).await?;
    let healthy = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    for (path, host, expected) in [
        ("/healthz", "localhost", (200, "ok\n")),
        // Whoever looks after a cluster knows addresses.
        ("/healthz", "10.1.2.3:8080", (200, "ok\n")),
        ("/readyz", "10.1.2.3:8080", (200, "ready\n")),
    ] {
        let (status, text) = ask(&healthy, path, host).await?;
        assert_eq!((status, text.as_str()), expected, "{path} {host}");
    }
    assert_eq!(ask(&healthy, "/info", "localhost").await?.0, 401);
    assert_eq!(ask(&healthy, "/info", "10.1.2.3:8080").await?.0, 421);

    kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGKILL)?;
    server.wait().await?;
    assert_eq!(ask(&healthy, "/healthz", "localhost").await?.0, 200);
    // It has answered a moment ago, and a failover takes as long.
    assert_eq!(ask(&healthy, "/readyz", "localhost").await?.0, 200);
    eventually("the DCI not to be ready", || async {
        let (status, text) = ask(&healthy, "/readyz", "localhost").await?;
        Ok((status == 503 && text.starts_with("the database has not answered for 3")).then_some(()))
    })
    .await
}
