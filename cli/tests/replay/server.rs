//! Built `dci`s, and runs of the built `disbatch` against them.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use disbatch_mongod::testing::TestDatabase;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::recording::{ProgramOutput, Run};
use crate::text::Ids;

/// Where the recordings' server with the extension for searching was.
const RECORDED_MAIN: &str = "127.0.0.1:8181";

/// Where the recordings' server without extensions was.
const RECORDED_PLAIN: &str = "127.0.0.1:8182";

/// The extension that serves `/tasks/search`.
pub const SEARCH: &str = "Disbatch::Web::Tasks";

/// `disbatch` with no settings but those that a test gives.
pub fn disbatch() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disbatch"));
    for variable in ["DISBATCH_URL", "DISBATCH_USERNAME", "DISBATCH_PASSWORD", "DISBATCH_TOKEN", "HOME"] {
        command.env_remove(variable);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").kill_on_drop(true);
    command
}

/// The servers of the recordings.
pub struct Servers {
    main: Server,
    plain: Server,
    database: String,
}

/// A running `dci`, ended when dropped.
pub struct Server {
    _child: Child,
    _log: Lines<BufReader<ChildStderr>>,
    _folder: TempDir,
    /// Host and port.
    pub address: String,
}

impl Server {
    /// Starts one on a free port.
    pub async fn start(database: &TestDatabase, extensions: &[&str]) -> anyhow::Result<Self> {
        let dci = Path::new(env!("CARGO_BIN_EXE_disbatch")).with_file_name("dci");
        ensure!(dci.is_file(), "{} is missing: build the workspace first", dci.display());
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("config.json");
        let text = json!({ "mongohost": database.uri, "database": database.name,
            "plugins": ["Disbatch::Plugin::Demo"], "web_extensions": extensions });
        std::fs::write(&config, text.to_string())?;
        let mut child = Command::new(dci)
            .arg("--config")
            .arg(&config)
            .args(["--listen", "127.0.0.1:0"])
            .env("DISBATCH_LOG", "info")
            .env("DISBATCH_LOG_FORMAT", "json")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut log = BufReader::new(child.stderr.take().context("no standard error")?).lines();
        let address = loop {
            let Some(line) = log.next_line().await? else { bail!("dci ended before it listened") };
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = event.pointer("/fields/address").and_then(Value::as_str) {
                break address.to_owned();
            }
        };
        Ok(Self { _child: child, _log: log, _folder: folder, address })
    }

    /// Its address for `--url`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Servers {
    /// Starts both.
    pub async fn start(database: &TestDatabase) -> anyhow::Result<Self> {
        let main = Server::start(database, &[SEARCH]).await?;
        let plain = Server::start(database, &[]).await?;
        Ok(Self { main, plain, database: database.name.clone() })
    }

    /// Runs `disbatch` as recorded, with today's ids and address.
    pub async fn run(&self, run: &Run, ids: &Ids) -> anyhow::Result<ProgramOutput> {
        let arguments = run.argv.iter().map(|word| self.addresses(&ids.translate(word)));
        let output = disbatch().args(arguments).output().await?;
        Ok(ProgramOutput {
            exit_code: output.status.code().context("ended by a signal")?.into(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// A recorded outcome with today's address and database.
    pub fn here(&self, outcome: &ProgramOutput) -> ProgramOutput {
        let here = |text: &str| self.addresses(text).replace("dcap.", &format!("{}.", self.database));
        ProgramOutput { stdout: here(&outcome.stdout), stderr: here(&outcome.stderr), ..outcome.clone() }
    }

    fn addresses(&self, text: &str) -> String {
        text.replace(RECORDED_MAIN, &self.main.address).replace(RECORDED_PLAIN, &self.plain.address)
    }
}
