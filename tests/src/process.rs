//! The built binaries as processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// The path of a binary of this workspace, built in the profile of the tests.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    // target/PROFILE/deps/TEST, and target/PROFILE/PROGRAM for a program of the tests.
    let folder = own.parent().context("this program is in no folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let path = folder.join(name);
    ensure!(path.is_file(), "{} is missing: build the workspace in the same profile first", path.display());
    Ok(path)
}

#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// The exit code; a death by signal fails.
    pub fn code(&self) -> anyhow::Result<i32> {
        self.status.code().with_context(|| format!("{}: {}", self.status, self.stderr))
    }
}

/// Runs a command to its end.
pub async fn finish(command: &mut Command) -> anyhow::Result<Finished> {
    let output = command.stdin(Stdio::null()).output().await?;
    Ok(Finished {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A running DEN. Killed when dropped; its runners go on, as they do in life.
#[derive(Debug)]
pub struct Den {
    child: Child,
    log: PathBuf,
}

impl Den {
    pub(crate) fn start(
        config: &Path,
        node: &str,
        arguments: &[&str],
        log: PathBuf,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(binary("den")?)
            .arg("--config")
            .arg(config)
            .args(["--node", node])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child, log })
    }

    /// What it has logged.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    pub fn process(&self) -> anyhow::Result<u32> {
        self.child.id().context("the DEN has ended")
    }

    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.process()?)?), signal)?)
    }

    /// Sends it a signal and waits for its end.
    pub async fn end_with(mut self, signal: Signal) -> anyhow::Result<ExitStatus> {
        self.signal(signal)?;
        let ended = tokio::time::timeout(crate::PATIENCE, self.child.wait()).await;
        Ok(ended.with_context(|| format!("the DEN does not end: {}", self.log().unwrap_or_default()))??)
    }
}
