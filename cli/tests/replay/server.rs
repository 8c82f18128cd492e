//! The built `dci`, and runs of the built `disbatch` against it.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use disbatch_mongod::testing::TestDatabase;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::recording::{Outcome, Run};
use crate::text::Ids;

/// Where the recordings' server was.
const RECORDED: &str = "127.0.0.1:8181";

/// A running `dci`, ended when dropped.
pub struct Server {
    _child: Child,
    _log: Lines<BufReader<ChildStderr>>,
    _folder: TempDir,
    address: String,
    database: String,
}

impl Server {
    /// Starts one on a free port.
    pub async fn start(database: &TestDatabase) -> anyhow::Result<Self> {
        let dci = Path::new(env!("CARGO_BIN_EXE_disbatch")).with_file_name("dci");
        ensure!(dci.is_file(), "{} is missing: build the workspace first", dci.display());
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("config.json");
        let text = json!({ "mongohost": database.uri, "database": database.name,
            "plugins": ["Disbatch::Plugin::Demo"] });
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
        let database = database.name.clone();
        Ok(Self { _child: child, _log: log, _folder: folder, address, database })
    }

    /// Runs `disbatch` as recorded, with today's ids and address.
    pub async fn run(&self, run: &Run, ids: &Ids) -> anyhow::Result<Outcome> {
        let arguments = run.argv.iter().map(|word| ids.translate(word).replace(RECORDED, &self.address));
        let output = Command::new(env!("CARGO_BIN_EXE_disbatch")).args(arguments).output().await?;
        Ok(Outcome {
            exit_code: output.status.code().context("ended by a signal")?.into(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// A recorded outcome with today's address and database.
    pub fn here(&self, outcome: &Outcome) -> Outcome {
        let here = |text: &str| {
            text.replace(RECORDED, &self.address).replace("dcap.", &format!("{}.", self.database))
        };
        Outcome { stdout: here(&outcome.stdout), stderr: here(&outcome.stderr), ..outcome.clone() }
    }
}
