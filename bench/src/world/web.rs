//! One DCI process with a database of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use disbatch_core::config::{Config, Role};
use disbatch_core::model::QueueId;
use disbatch_core::store::Store;
use disbatch_mongod::watchdog::Watchdog;
use mongodb::{Client, Database};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(60);

/// A DCI that listens.
#[derive(Debug)]
pub struct Web {
    pub store: Store,
    pub database: Database,
    child: Child,
    watchdog: Watchdog,
    url: String,
    http: reqwest::Client,
    /// What it shows with each request, if it has to show anything.
    token: Option<String>,
    /// Where it writes its log, which has to be kept open.
    _log: Lines<BufReader<ChildStderr>>,
}

impl Web {
    /// Starts a DCI for the database `name` on a free port, which knows the plugins of these folders.
    pub async fn start(
        dci: &Path,
        (uri, name): (&str, &str),
        folder: &Path,
        plugins: &[PathBuf],
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join("config.json");
        let mut config = json!({ "mongohost": uri, "database": name });
        match plugins {
            [] => config["plugins"] = json!([]),
            folders => config["plugin_dirs"] = json!(folders),
        }
        fs::write(&path, config.to_string())?;
        let store = Store::connect(&Config::load(&path)?, Role::DisbatchWeb).await?;
        let database = Client::with_uri_str(uri).await?.database(name);
        let mut child = Command::new(dci)
            .arg("--config")
            .arg(&path)
            .args(["--listen", "127.0.0.1:0"])
            .env("DISBATCH_LOG", "info")
            .env("DISBATCH_LOG_FORMAT", "json")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", dci.display()))?;
        let id = child.id().context("the DCI ended at once")?;
        let watchdog =
            Watchdog::start(id, path.as_os_str(), None).context("cannot start sh to watch the DCI")?;
        let mut log = BufReader::new(child.stderr.take().context("the DCI has no log")?).lines();
        let url = timeout(DEADLINE, address(&mut log)).await.context("the DCI does not listen")??;
        let http = client()?;
        Ok(Self { store, database, child, watchdog, url, http, token: None, _log: log })
    }

    /// From now on asks as the bearer of this token.
    pub fn show(&mut self, token: String) {
        self.token = Some(token);
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process id. `None` if it has ended.
    pub fn pid(&self) -> Option<i32> {
        i32::try_from(self.child.id()?).ok()
    }

    /// The answer to `GET path`, which must be a success.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let response = self.http.get(format!("{}{path}", self.url)).send().await?.error_for_status()?;
        Ok(serde_json::from_slice(&response.bytes().await?)?)
    }

    /// What a browser gets there, which must be a success.
    pub async fn page(&self, path: &str) -> anyhow::Result<String> {
        let response =
            self.http.get(format!("{}{path}", self.url)).header(ACCEPT, "text/html").send().await?;
        Ok(response.error_for_status()?.text().await?)
    }

    /// Sends `POST path`, which must be a success.
    pub async fn post(&self, path: &str) -> anyhow::Result<()> {
        self.http.post(format!("{}{path}", self.url)).send().await?.error_for_status()?;
        Ok(())
    }

    /// Submits a task over a connection that is kept. It has a parameter, as the API takes none without.
    pub async fn submit(&self, queue: QueueId) -> anyhow::Result<()> {
        self.submit_all(queue, &[json!({ "n": 1 })]).await
    }

    /// The same, a task for each of these parameters.
    pub async fn submit_all(&self, queue: QueueId, params: &[Value]) -> anyhow::Result<()> {
        let body = json!({ "queue": queue.to_string(), "params": params }).to_string();
        let request = self.http.post(format!("{}/tasks", self.url)).header(CONTENT_TYPE, "application/json");
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.body(body).send().await?;
        let status = answer.status();
        // Read to its end, or its connection would not be used again.
        let text = answer.text().await?;
        ensure!(status.is_success(), "POST /tasks: {status}: {text}");
        Ok(())
    }

    /// Ends the DCI. The database stays.
    pub async fn end(mut self) -> anyhow::Result<Database> {
        self.child.kill().await?;
        self.watchdog.release();
        Ok(self.database)
    }

    /// Ends the DCI, and drops the database.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.end().await?.drop().await?;
        Ok(())
    }
}

pub fn client() -> anyhow::Result<reqwest::Client> {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

/// What is served there, which must be a success.
pub async fn text(http: &reqwest::Client, url: &str) -> anyhow::Result<String> {
    Ok(http.get(url).send().await?.error_for_status()?.text().await?)
}

/// Where the DCI listens, from its log.
async fn address(log: &mut Lines<BufReader<ChildStderr>>) -> anyhow::Result<String> {
    while let Some(line) = log.next_line().await? {
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(address) = event.pointer("/fields/address").and_then(Value::as_str) {
            return Ok(format!("http://{address}"));
        }
    }
    bail!("the DCI ended before it listened")
}
