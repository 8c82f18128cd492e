//! The DENs and the DCI of the suite, which are killed and started again under the same name.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::processes::MARK;
use crate::process::binary;

/// A program that is started again and again.
#[derive(Debug)]
pub struct Daemon {
    /// The node's name; the program's if it has none.
    pub name: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    child: Option<Child>,
    stopped: bool,
}

/// Where a daemon logs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    File,
    /// A device that is full.
    Full,
}

impl Daemon {
    /// A DEN, not started yet.
    pub fn den(folder: &Path, name: &str, config: &Path) -> anyhow::Result<Self> {
        Self::new("den", name, folder, vec!["--config".into(), shown(config), "--node".into(), name.into()])
    }

    /// A DCI, not started yet, and where it will be.
    pub fn web(folder: &Path, config: &Path) -> anyhow::Result<(Self, String)> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let arguments = vec!["--config".into(), shown(config), "--listen".into(), address.clone()];
        Ok((Self::new("dci", "dci", folder, arguments)?, format!("http://{address}")))
    }

    fn new(program: &str, name: &str, folder: &Path, arguments: Vec<String>) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            program: binary(program)?,
            arguments,
            folder: folder.to_owned(),
            child: None,
            stopped: false,
        })
    }

    /// Starts it, if it does not run.
    pub fn start(&mut self, log: Log) -> anyhow::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let path = match log {
            Log::File => self.folder.join("logs").join(format!("{}.log", self.name)),
            Log::Full => PathBuf::from("/dev/full"),
        };
        let file = File::options().create(log == Log::File).append(true).open(&path)?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .env(MARK, &self.folder)
            .env("TMPDIR", self.folder.join("tmp"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        self.child = Some(child);
        self.stopped = false;
        Ok(())
    }

    /// Whether it runs and is not stopped.
    pub fn works(&self) -> bool {
        self.child.is_some() && !self.stopped
    }

    /// The most memory that it has ever had, in KiB.
    pub fn peak(&self) -> Option<u64> {
        let id = self.child.as_ref()?.id()?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        peak.trim().trim_end_matches("kB").trim().parse().ok()
    }

    /// Kills it without a word.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Stops it where it is.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.signal(Signal::SIGSTOP);
    }

    pub fn go_on(&mut self) {
        if std::mem::take(&mut self.stopped) {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Ends it in order.
    pub async fn end(&mut self) -> anyhow::Result<()> {
        self.go_on();
        self.signal(Signal::SIGTERM);
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let ended = tokio::time::timeout(crate::PATIENCE, child.wait()).await;
        let status = ended.with_context(|| format!("{} does not end at SIGTERM", self.name))??;
        anyhow::ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        if let Some(id) = id {
            // It has not been waited for, so the number is its own.
            let _ended = kill(Pid::from_raw(id), signal);
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
