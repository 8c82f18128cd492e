//! The built `dci`, as a user starts it.

use std::io::{self, Write};
use std::process::Stdio;

use anyhow::{Context, bail};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// A running `dci`, ended when dropped.
pub struct Server {
    _child: Child,
    _folder: TempDir,
    url: String,
    http: reqwest::Client,
}

impl Server {
    /// Starts one on a free port.
    pub async fn start(config: &Value) -> anyhow::Result<Self> {
        let text = config.to_string();
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("config.json");
        std::fs::write(&config, text)?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_dci"))
            .arg("--config")
            .arg(&config)
            .args(["--listen", "127.0.0.1:0"])
            .env("DISBATCH_LOG", "info")
            .env("DISBATCH_LOG_FORMAT", "json")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().context("no standard error")?;
        let mut log = BufReader::new(stderr).lines();
        let url = loop {
            let Some(line) = log.next_line().await? else { bail!("dci ended before it listened") };
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = event.pointer("/fields/address").and_then(Value::as_str) {
                break format!("http://{address}");
            }
        };
        // Fails when a provider is installed already, which is as good.
        let _already_installed = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        tokio::spawn(tell_errors(log));
        Ok(Self { _child: child, _folder: folder, url, http })
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }
}

/// Reads a log to its end, and shows what is wrong to those who look why a test failed.
async fn tell_errors(mut log: Lines<BufReader<ChildStderr>>) {
    while let Ok(Some(line)) = log.next_line().await {
        if line.contains("\"level\":\"ERROR\"") {
            let _nobody_reads = writeln!(io::stderr(), "{line}");
        }
    }
}
