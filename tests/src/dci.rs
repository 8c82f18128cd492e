//! A running DCI, and requests to it.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::eventually;
use crate::process::binary;

/// What its unit tells the allocator.
const MEMORY: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "262144")];

/// A running DCI on a free port. Killed when dropped.
#[derive(Debug)]
pub struct Dci {
    child: Child,
    url: String,
    http: reqwest::Client,
}

impl Dci {
    /// Starts one and waits until it listens.
    pub async fn start(config: &Path, log: &Path) -> anyhow::Result<Self> {
        Self::start_at("127.0.0.1:0", config, log).await
    }

    /// Starts one with these variables.
    pub async fn start_with(config: &Path, log: &Path, environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_in("127.0.0.1:0", config, log, environment).await
    }

    /// Starts one at an address that another one had until it was killed.
    pub async fn start_at(listen: &str, config: &Path, log: &Path) -> anyhow::Result<Self> {
        Self::start_in(listen, config, log, &[]).await
    }

    async fn start_in(
        listen: &str,
        config: &Path,
        log: &Path,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let child = Command::new(binary("dci")?)
            .arg("--config")
            .arg(config)
            .args(["--listen", listen])
            .envs(MEMORY)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(File::create(log)?)
            .kill_on_drop(true)
            .spawn()?;
        let address = eventually("the DCI's address", || async {
            let text = std::fs::read_to_string(log)?;
            let address = text.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
            Ok(address.map(str::to_owned))
        })
        .await?;
        let http = http_client().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { child, url: format!("http://{address}"), http })
    }

    /// Ends it with SIGKILL, and gives the address that it had.
    pub async fn kill(mut self) -> anyhow::Result<String> {
        self.child.kill().await?;
        Ok(self.url.trim_start_matches("http://").to_owned())
    }

    /// The most memory that it has had since [`Dci::forget_peak`], in bytes.
    pub fn peak(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak")?;
        let kib: u64 = line.split_whitespace().next().context("no number")?.parse()?;
        Ok(kib * 1024)
    }

    /// From now on, the peak is that of what comes, beginning with what it has at the moment.
    pub fn forget_peak(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.process()?), "5")?)
    }

    pub fn process(&self) -> anyhow::Result<u32> {
        self.child.id().context("the DCI has ended")
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let (status, body) = answer(self.request(Method::GET, path)).await?;
        ensure!(status == 200, "GET {path}: {status} {body}");
        Ok(body)
    }

    /// What it answers to POST: the status and the body.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// What it answers to POST if all is well.
    pub async fn posted(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, answer) = self.post(path, body).await?;
        ensure!(status == 200, "POST {path} {body}: {status} {answer}");
        Ok(answer)
    }
}

/// A client to be, which needs to know who does its cryptography.
pub(crate) fn http_client() -> reqwest::ClientBuilder {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

async fn answer(request: RequestBuilder) -> anyhow::Result<(u16, Value)> {
    let response = request.send().await?;
    let (status, text) = (response.status().as_u16(), response.text().await?);
    Ok((status, serde_json::from_str(&text).with_context(|| format!("{status} {text}"))?))
}
