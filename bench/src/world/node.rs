//! One DEN process with a database of its own.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bson::{Bson, Document, doc};
use disbatch_core::config::{Config, Role};
use disbatch_core::model::{QueueId, Selector};
use disbatch_core::node::NodeChange;
use disbatch_core::queue::new_queue_id;
use disbatch_core::store::Store;
use disbatch_mongod::watchdog::Watchdog;
use mongodb::{Client, Database};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval, timeout};

use super::own_uri;

const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much of the DEN's log explains a failure.
const LAST_LINES: usize = 15;

/// A DEN at work. Its configuration is what an operator would have: the database's address and folders of plugins.
#[derive(Debug)]
pub struct Node {
    pub store: Store,
    pub database: Database,
    name: String,
    child: Child,
    pid: Pid,
    watchdog: Watchdog,
    log: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Setup {
    pub den: PathBuf,
    /// The MongoDB server.
    pub uri: String,
    /// Where its configuration and its log are.
    pub folder: PathBuf,
    pub name: String,
    pub database: String,
    /// The folders of the plugins.
    pub plugins: Vec<PathBuf>,
    /// What else is in its configuration.
    pub settings: Map<String, Value>,
    pub environment: Vec<(&'static str, String)>,
}

impl Setup {
    /// Has the node serve metrics on a port that is free now. Returns the address of these.
    pub fn serve_metrics(&mut self) -> anyhow::Result<String> {
        let address = format!("127.0.0.1:{}", free_port()?);
        self.settings.insert("metrics".to_owned(), json!({ "listen": address }));
        Ok(format!("http://{address}/metrics"))
    }
}

pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

impl Node {
    /// Starts a DEN, and waits until it is at work.
    pub async fn start(setup: &Setup) -> anyhow::Result<Self> {
        let Setup { den, uri, folder, name, database, plugins, settings, environment } = setup;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let (path, log) = (folder.join("config.json"), folder.join("den.log"));
        let config = |uri: &str| {
            let mut config = settings.clone();
            config.extend([
                ("mongohost".to_owned(), json!(uri)),
                ("database".to_owned(), json!(database)),
                ("plugin_dirs".to_owned(), json!(plugins)),
            ]);
            Value::Object(config)
        };
        fs::write(&path, config(uri).to_string())?;
        let own = folder.join("bench.json");
        fs::write(&own, config(&own_uri(uri)).to_string())?;
        let store = Store::connect(&Config::load(&own)?, Role::Disbatchd).await?;
        let database = Client::with_uri_str(own_uri(uri)).await?.database(database);
        let child = Command::new(den)
            .arg("--config")
            .arg(&path)
            .args(["--node", name])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", den.display()))?;
        let id = child.id().context("the DEN ended at once")?;
        let watchdog =
            Watchdog::start(id, path.as_os_str(), None).context("cannot start sh to watch the DEN")?;
        let (name, pid) = (name.clone(), Pid::from_raw(i32::try_from(id)?));
        let mut node = Self { store, database, name, child, pid, watchdog, log };
        match node.wait_until_ready().await {
            Ok(()) => Ok(node),
            Err(error) => Err(node.explain(&error)),
        }
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// A DEN is at work when it has entered itself into `nodes`.
    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let nodes = self.database.collection::<Document>("nodes");
        let (begun, mut look) = (Instant::now(), interval(LOOK_EVERY));
        while nodes.find_one(doc! { "node": &self.name }).await?.is_none() {
            self.check_alive()?;
            ensure!(begun.elapsed() < DEADLINE, "the DEN is not at work after {} s", DEADLINE.as_secs());
            look.tick().await;
        }
        Ok(())
    }

    pub async fn create_queue(&self, plugin: &str, threads: u32) -> anyhow::Result<QueueId> {
        let queue = new_queue_id();
        self.store
            .insert_queue(doc! { "_id": queue, "name": format!("{plugin} {queue}"), "plugin": plugin })
            .await?;
        self.set_threads(queue, threads).await?;
        Ok(queue)
    }

    pub async fn set_threads(&self, queue: QueueId, threads: u32) -> anyhow::Result<()> {
        self.store.update_queue(&Selector::Id(queue.0), doc! { "threads": i64::from(threads) }).await?;
        Ok(())
    }

    /// How many tasks this node may run at once. It has heard of it within a second.
    pub async fn set_maxthreads(&self, most: u32) -> anyhow::Result<()> {
        let change = NodeChange { maxthreads: Some(Bson::Int64(most.into())), ..NodeChange::default() };
        self.store.update_node(&Selector::Name(self.name.clone()), change).await?.context("no such node")?;
        Ok(())
    }

    /// The server's own database.
    pub fn admin(&self) -> Database {
        self.database.client().database("admin")
    }

    /// Ends the DEN in order. The database stays.
    pub async fn end(&mut self) -> anyhow::Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            kill(self.pid, Signal::SIGTERM).context("cannot signal the DEN")?;
        }
        timeout(DEADLINE, self.child.wait()).await.context("the DEN does not end")?.map_err(Into::into)
    }

    /// Does `work` with it, then ends it, whatever came out. An error gets the end of the DEN's log.
    pub async fn finish<T>(
        mut self,
        work: impl AsyncFnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        match work(&mut self).await {
            Ok(value) => self.stop().await.map(|()| value),
            Err(error) => {
                let error = self.explain(&error);
                // The first error is the one that tells something.
                let _ = self.stop().await;
                Err(error)
            }
        }
    }

    /// Fails if the DEN has ended.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the DEN has ended: {status}"),
            None => Ok(()),
        }
    }

    /// Adds the end of the DEN's log, which its runners share, to an error.
    fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        anyhow!("{error:#}\nThe end of the DEN's log:\n{last}")
    }

    /// Ends the DEN in order. The database stays, with the nodes that use it.
    pub async fn leave(mut self) -> anyhow::Result<()> {
        let status = self.end().await?;
        self.watchdog.release();
        ensure!(status.success(), "the DEN ended with {status}");
        Ok(())
    }

    /// Ends the DEN in order, and drops the database.
    async fn stop(self) -> anyhow::Result<()> {
        let database = self.database.clone();
        let left = self.leave().await;
        database.drop().await?;
        left
    }
}
