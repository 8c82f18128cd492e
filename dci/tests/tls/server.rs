//! The built `dci`, as an operator starts it, and its log.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval, timeout};

/// How long to wait for something that should happen within moments, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running `dci` that asks nobody who they are, ended when dropped.
pub struct Server {
    child: Child,
    _folder: TempDir,
    log: Arc<Mutex<String>>,
    /// Where it is.
    pub address: SocketAddr,
}

impl Server {
    /// Starts one on a free port.
    pub async fn start(config: &Value, arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("config.json");
        std::fs::write(&path, config.to_string())?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_dci"))
            .arg("--config")
            .arg(&path)
            .args(["--listen", "127.0.0.1:0", "--insecure-no-auth"])
            .args(arguments)
            .env("DISBATCH_LOG", "info")
            .env("DISBATCH_LOG_FORMAT", "json")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("no standard error")?).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let address = loop {
            let Some(line) = lines.next_line().await? else { bail!("dci ended: {}", text(&log)) };
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            add(&log, &line);
            if event.pointer("/fields/message").is_some_and(|message| message == "listening") {
                let address = event.pointer("/fields/address").and_then(Value::as_str);
                break address.context("no address")?.parse::<SocketAddr>()?;
            }
        };
        let more = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                add(&more, &line);
            }
        });
        Ok(Self { child, _folder: folder, log, address })
    }

    /// How many lines of its log have these words.
    pub fn said(&self, words: &str) -> usize {
        text(&self.log).lines().filter(|line| line.contains(words)).count()
    }

    /// The most memory that it has ever had, in bytes.
    pub fn peak(&self) -> anyhow::Result<u64> {
        let id = self.child.id().context("it has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak")?;
        let kilobytes = peak.trim().trim_end_matches("kB").trim();
        Ok(kilobytes.parse::<u64>()? * 1024)
    }

    /// Sends it SIGHUP.
    pub fn hang_up(&self) -> anyhow::Result<()> {
        let id = i32::try_from(self.child.id().context("it has ended")?)?;
        Ok(kill(Pid::from_raw(id), Signal::SIGHUP)?)
    }

    /// What it answers to these bytes until it closes the connection, which stays open on this side.
    pub async fn exchange(&self, sent: &[u8]) -> anyhow::Result<String> {
        let mut connection = TcpStream::connect(self.address).await?;
        connection.write_all(sent).await?;
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, connection.read_to_end(&mut answer)).await;
        read.with_context(|| format!("it stays open after {:?}", String::from_utf8_lossy(&answer)))??;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

fn add(log: &Mutex<String>, line: &str) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.push_str(line);
    log.push('\n');
}

fn text(log: &Mutex<String>) -> String {
    log.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Waits until `condition` holds.
pub async fn eventually(
    what: &str,
    mut condition: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut looks = interval(Duration::from_millis(50));
    loop {
        looks.tick().await;
        if condition().await? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("waited {} s in vain: {what}", PATIENCE.as_secs());
        }
    }
}
