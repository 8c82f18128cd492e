//! The private servers of the peers. They listen on 127.0.0.1, and end with the benchmark, also when it is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use disbatch_mongod::watchdog::Watchdog;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval, timeout};

use crate::world::node::free_port;

const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// PostgreSQL refuses to run as root: this is `nobody`.
const NOBODY: u32 = 65534;

#[derive(Debug)]
pub struct Service {
    pub url: String,
    child: Child,
    watchdog: Watchdog,
    folder: PathBuf,
}

impl Service {
    /// Redis that keeps nothing on disk, which is how it is fastest.
    pub async fn redis() -> anyhow::Result<Self> {
        let (folder, port) = (private_folder("redis")?, free_port()?);
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        // Its arguments stay as they are, by which the watchdog knows it.
        command.args(["--set-proc-title", "no", "--dir"]).arg(&folder);
        let mut service = Self::start(command, folder, format!("redis://127.0.0.1:{port}"))?;
        service.wait_until(async || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok()).await?;
        Ok(service)
    }

    /// PostgreSQL as its package configures it, with the programs in `programs`.
    pub async fn postgres(programs: &Path) -> anyhow::Result<Self> {
        let (folder, port) = (private_folder("postgres")?, free_port()?);
        if Uid::effective().is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY))?;
        }
        let data = folder.join("data");
        let mut init = as_user(&programs.join("initdb"));
        init.arg("-D").arg(&data).args([
            "-U",
            "bench",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        ]);
        let made = init.current_dir(&folder).stdin(Stdio::null()).output().await?;
        ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let mut command = as_user(&programs.join("postgres"));
        command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""]);
        let url = format!("postgresql://bench@127.0.0.1:{port}/postgres");
        let mut service = Self::start_marked(command, folder, data.as_os_str(), url)?;
        let probe = programs.join("pg_isready");
        service.wait_until(async || is_ready(&probe, port).await).await?;
        Ok(service)
    }

    fn start(command: Command, folder: PathBuf, url: String) -> anyhow::Result<Self> {
        let mark = folder.clone();
        Self::start_marked(command, folder, mark.as_os_str(), url)
    }

    /// `mark` is one of its arguments, by which it is known.
    fn start_marked(
        mut command: Command,
        folder: PathBuf,
        mark: &OsStr,
        url: String,
    ) -> anyhow::Result<Self> {
        let log = File::create(folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&folder);
        // A ^C in the terminal is for the benchmark, which ends its servers last.
        let child = command.process_group(0).spawn().context("cannot be started")?;
        let pid = child.id().context("it ended at once")?;
        let watchdog = Watchdog::start(pid, mark, Some(&folder)).context("cannot start sh to watch it")?;
        Ok(Self { url, child, watchdog, folder })
    }

    async fn wait_until(&mut self, ready: impl AsyncFn() -> bool) -> anyhow::Result<()> {
        let (begun, mut look) = (Instant::now(), interval(LOOK_EVERY));
        while !ready().await {
            if let Some(status) = self.child.try_wait()? {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("{} ended with {status}: {}", self.url, log.trim_end());
            }
            ensure!(begun.elapsed() < DEADLINE, "{} is not ready after {} s", self.url, DEADLINE.as_secs());
            look.tick().await;
        }
        Ok(())
    }

    /// Ends it and removes its folder.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.child.id() {
            // To PostgreSQL, this means not to wait for its clients.
            kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGINT).context("cannot signal it")?;
        }
        timeout(DEADLINE, self.child.wait())
            .await
            .with_context(|| format!("{} does not end", self.url))??;
        self.watchdog.release();
        std::fs::remove_dir_all(&self.folder)?;
        Ok(())
    }
}

fn private_folder(name: &str) -> std::io::Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix(&format!("disbatch-bench-{name}-")).tempdir()?.keep())
}

fn as_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    if Uid::effective().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

async fn is_ready(probe: &Path, port: u16) -> bool {
    let mut command = Command::new(probe);
    command.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
    command.status().await.is_ok_and(|status| status.success())
}
