//! One DEN process with a database of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bson::{Document, doc};
use disbatch_core::config::{Config, Role};
use disbatch_core::model::{QueueId, Selector};
use disbatch_core::queue::new_queue_id;
use disbatch_core::store::Store;
use disbatch_mongod::watchdog::Watchdog;
use mongodb::{Client, Database};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval, timeout};

use crate::figure::PLUGIN;

const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much of the DEN's log explains a failure.
const LAST_LINES: usize = 15;

/// A DEN at work. Its configuration is what an operator would have: nothing but the database's address.
#[derive(Debug)]
pub struct Node {
    /// The operations of Disbatch.
    pub store: Store,
    /// Everything else.
    pub database: Database,
    child: Child,
    pid: Pid,
    watchdog: Watchdog,
    log: PathBuf,
}

impl Node {
    /// Starts a DEN called `name` on a database of that name, and waits until it is at work.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(den: &Path, uri: &str, folder: &Path, name: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let (path, log) = (folder.join("config.json"), folder.join("den.log"));
        fs::write(&path, serde_json::json!({ "mongohost": uri, "database": name }).to_string())?;
        let config = Config::load(&path)?;
        let store = Store::connect(&config, Role::Disbatchd).await?;
        let database = Client::with_uri_str(uri).await?.database(name);
        let child = Command::new(den)
            .arg("--config")
            .arg(&path)
            .args(["--node", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", den.display()))?;
        let id = child.id().context("the DEN ended at once")?;
        let watchdog =
            Watchdog::start(id, path.as_os_str(), None).context("cannot start sh to watch the DEN")?;
        let mut node = Self { store, database, child, pid: Pid::from_raw(i32::try_from(id)?), watchdog, log };
        match node.wait_until_ready().await {
            Ok(()) => Ok(node),
            Err(error) => Err(node.explain(&error)),
        }
    }

    /// A DEN is at work when it has entered itself into `nodes`.
    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let nodes = self.database.collection::<Document>("nodes");
        let (begun, mut look) = (Instant::now(), interval(LOOK_EVERY));
        while nodes.find_one(doc! {}).await?.is_none() {
            self.check_alive()?;
            ensure!(begun.elapsed() < DEADLINE, "the DEN is not at work after {} s", DEADLINE.as_secs());
            look.tick().await;
        }
        Ok(())
    }

    /// A queue of the plugin of all tasks.
    ///
    /// # Errors
    /// The database refuses it.
    pub async fn create_queue(&self, threads: u32) -> anyhow::Result<QueueId> {
        let queue = new_queue_id();
        self.store.create_queue(queue, "bench".into(), PLUGIN.into()).await?;
        self.set_threads(queue, threads).await?;
        Ok(queue)
    }

    /// How many tasks of the queue may run at once.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn set_threads(&self, queue: QueueId, threads: u32) -> anyhow::Result<()> {
        self.store.update_queue(&Selector::Id(queue.0), doc! { "threads": i64::from(threads) }).await?;
        Ok(())
    }

    /// Fails if the DEN has ended.
    ///
    /// # Errors
    /// It has.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the DEN has ended: {status}"),
            None => Ok(()),
        }
    }

    /// Adds the end of the DEN's log, which its runners share, to an error.
    pub fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        anyhow!("{error:#}\nThe end of the DEN's log:\n{last}")
    }

    /// Ends the DEN in order, and drops the database.
    ///
    /// # Errors
    /// It does not end as it should.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            kill(self.pid, Signal::SIGTERM).context("cannot signal the DEN")?;
        }
        let status = timeout(DEADLINE, self.child.wait()).await.context("the DEN does not end")??;
        self.watchdog.release();
        self.database.drop().await?;
        ensure!(status.success(), "the DEN ended with {status}");
        Ok(())
    }
}
