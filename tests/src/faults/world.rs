//! The world that the faults come over: a replica set of three, four DENs, a DCI, a web service, a receiver of messages, Podman where
//! there can be one, queues of both kinds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::config::{Config, Role};
use disbatch_core::model::{QueueId, Selector};
use disbatch_core::store::Store;
use disbatch_mongod::locate;
use disbatch_mongod::replica_set::ReplicaSet;
use mongodb::{Collection, Database};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::boxes;
use super::limits::Limits;
use super::node::{Daemon, Log};
use super::notifications;
use super::poison;
use super::processes::MARK;
use super::random::Random;
use super::service::{SILENCE, Service};
use super::work::wall_time;
use crate::eventually;
use crate::hook::Hook;
use crate::plugins::{install_manifest, install_recorder};
use crate::podman::Podman;

/// Seconds: short, so that many run out.
pub const LEASE: f64 = 3.0;

/// How often a task of a queue that requeues is tried.
pub const MAX_ATTEMPTS: i64 = 5;

const MEMBERS: usize = 3;
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

/// Name, how its tasks are run, threads, whether it requeues, what its runners do when they lose the database.
const QUEUES: [(&str, How, u64, bool, Option<&str>); 8] = [
    ("fail", How::Program, 6, false, None),
    ("fail-stop", How::Program, 2, false, Some("stop")),
    ("requeue", How::Program, 6, true, None),
    ("requeue-narrow", How::Program, 2, true, None),
    ("service-fail", How::Service, 4, false, None),
    ("service-requeue", How::Service, 3, true, None),
    ("box-fail", How::Container, 2, false, None),
    ("box-requeue", How::Container, 1, true, None),
];

/// Those of them that record half of their attempts.
pub const RECORDED: [&str; 2] = ["fail", "requeue"];

/// How tasks of a queue are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By a program of ours.
    Program,
    /// By a web service.
    Service,
    Container,
}

impl How {
    fn plugin(self) -> &'static str {
        match self {
            Self::Program => "Faults",
            Self::Service => "FaultsWeb",
            Self::Container => boxes::PLUGIN,
        }
    }
}

/// A queue, and what was done to it.
#[derive(Debug)]
pub struct Queue {
    pub id: QueueId,
    pub name: String,
    pub how: How,
    /// Its `threads` when it is left alone.
    pub usual: u64,
    /// Whether its tasks are tried again when their runner dies.
    pub requeues: bool,
    /// Held while it is changed.
    state: Mutex<State>,
    limits: StdMutex<Limits>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    threads: u64,
    paused: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Change {
    Threads(u64),
    Paused(bool),
}

impl Queue {
    /// Which limits were in force when.
    pub fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct World {
    /// Everything on disk.
    pub folder: PathBuf,
    /// The database servers.
    pub set: Mutex<ReplicaSet>,
    /// Where they are.
    pub uri: String,
    pub store: Store,
    pub database: Database,
    pub dens: Vec<Mutex<Daemon>>,
    /// The DCI.
    pub web: Mutex<Daemon>,
    /// Where it is.
    pub url: String,
    pub service: Service,
    /// Who is told what fails.
    pub hook: Hook,
    /// What containers run on, where there can be any.
    pub podman: Option<Podman>,
    pub queues: Vec<Queue>,
    pub poison: QueueId,
}

impl World {
    /// Starts everything in `folder`.
    pub async fn start(folder: &Path, mut random: Random) -> anyhow::Result<Self> {
        for name in ["tmp", "logs", "records", "plugins"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let (plugins, records) = (folder.join("plugins"), folder.join("records"));
        install_recorder(&plugins, How::Program.plugin(), &records)?;
        poison::PLUGIN.install(&plugins)?;
        let service = Service::start(random.split()).await?;
        let hook = Hook::start(notifications::manners(&mut random)).await?;
        let http = json!({ "url": service.url, "timeout": SILENCE, "connect_retries": 2 });
        install_manifest(&plugins, How::Service.plugin(), "http", &http)?;
        install_manifest(&plugins, How::Container.plugin(), "container", &boxes::section(&records))?;
        let podman = Box::pin(Podman::start()).await?;
        let program = tokio::task::spawn_blocking(|| locate::find_or_fetch(|_| ())).await??;
        let set = Box::pin(ReplicaSet::start(&program, &folder.join("mongodb"), MEMBERS)).await?;
        let uri = set.uri();
        let config =
            configure(folder, "dci", &uri, &json!({ "plugins": QUEUES.map(|(_, how, ..)| how.plugin()) }))?;
        let store = Store::connect(&Config::load(&config)?, Role::DisbatchWeb).await?;
        store.ensure_indexes().await?;
        let client = mongodb::Client::with_uri_str(format!("{uri}&w=majority")).await?;
        let (web, url) = Daemon::web(folder, &config)?;
        let mut world = Self {
            folder: folder.to_owned(),
            set: Mutex::new(set),
            store,
            database: client.database("faults"),
            dens: Vec::new(),
            web: Mutex::new(web),
            url,
            service,
            hook,
            podman,
            queues: Vec::new(),
            poison: QueueId(ObjectId::new()),
            uri,
        };
        world.create_queues().await?;
        notifications::subscribe(&world).await?;
        world.web.lock().await.start(Log::File)?;
        world.start_dens().await?;
        Ok(world)
    }

    async fn create_queues(&mut self) -> anyhow::Result<()> {
        let queue = doc! { "_id": self.poison, "name": "poison", "plugin": poison::PLUGIN.name, "threads": 4_i64, "sort": "fifo" };
        self.database.collection::<Document>("queues").insert_one(queue).await?;
        for (name, how, threads, requeues, lost_lease) in QUEUES {
            if how == How::Container && self.podman.is_none() {
                continue;
            }
            let id = ObjectId::new();
            let mut queue = doc! {
                "_id": id, "name": name, "plugin": how.plugin(), "threads": i64::try_from(threads)?, "sort": "fifo",
            };
            if requeues {
                queue.insert("on_orphan", "requeue");
                queue.insert("max_attempts", MAX_ATTEMPTS);
                queue.insert("backoff", doc! { "base": 0.2, "factor": 1.5, "max": 2.0 });
            }
            if let Some(word) = lost_lease {
                queue.insert("on_lost_lease", word);
            }
            if RECORDED.contains(&name) {
                queue.insert("record", doc! { "share": 0.5 });
            }
            self.database.collection::<Document>("queues").insert_one(queue).await?;
            let mut limits = Limits::default();
            limits.changed(threads, Duration::ZERO, Duration::ZERO);
            self.queues.push(Queue {
                id: QueueId(id),
                name: name.to_owned(),
                how,
                usual: threads,
                requeues,
                state: Mutex::new(State { threads, paused: false }),
                limits: StdMutex::new(limits),
            });
        }
        Ok(())
    }

    async fn start_dens(&mut self) -> anyhow::Result<()> {
        let mut engines = json!({ "http": { "callback_url": self.url } });
        if let Some(podman) = &self.podman {
            engines["container"] = json!({ "socket": podman.socket() });
        }
        for name in NODES {
            // One of them stores all output in GridFS.
            let gfs = if name == "n3" { json!(true) } else { json!("auto") };
            let config =
                configure(&self.folder, name, &self.uri, &json!({ "gfs": gfs, "engines": engines }))?;
            let mut den = Daemon::den(&self.folder, name, &config)?;
            den.start(Log::File)?;
            self.dens.push(Mutex::new(den));
        }
        let nodes = self.database.collection::<Document>("nodes");
        eventually("all DENs to be at work", || async {
            Ok((nodes.count_documents(doc! {}).await? == NODES.len() as u64).then_some(()))
        })
        .await
    }

    /// Which of the DENs is the one of this node.
    pub async fn number_of(&self, node: &str) -> Option<usize> {
        for (number, den) in self.dens.iter().enumerate() {
            if den.lock().await.name == node {
                return Some(number);
            }
        }
        None
    }

    pub fn tasks(&self) -> Collection<Document> {
        self.database.collection("tasks")
    }

    /// Where the plugins keep their records.
    pub fn records(&self) -> PathBuf {
        self.folder.join("records")
    }

    /// Changes a queue, however long the database is away.
    pub async fn change(&self, queue: &Queue, change: Change) -> anyhow::Result<()> {
        let mut state = queue.state.lock().await;
        let field = match change {
            Change::Threads(threads) => {
                state.threads = threads;
                doc! { "threads": i64::try_from(threads)? }
            }
            Change::Paused(paused) => {
                state.paused = paused;
                doc! { "paused": paused }
            }
        };
        let limit = if state.paused { 0 } else { state.threads };
        let from = wall_time();
        while let Err(error) = self.store.update_queue(&Selector::Id(queue.id.0), field.clone()).await {
            anyhow::ensure!(error.is_transient(), error);
            sleep(Duration::from_millis(100)).await;
        }
        queue.limits().changed(limit, from, wall_time());
        Ok(())
    }

    /// Brings everything back that was killed, stopped or changed.
    pub async fn heal(&self) -> anyhow::Result<()> {
        {
            let mut set = self.set.lock().await;
            for member in 0..set.size() {
                set.restart(member).await?;
            }
        }
        for daemon in self.dens.iter().chain([&self.web]) {
            let mut daemon = daemon.lock().await;
            daemon.go_on();
            daemon.start(Log::File)?;
        }
        for queue in &self.queues {
            self.change(queue, Change::Paused(false)).await?;
            self.change(queue, Change::Threads(queue.usual)).await?;
        }
        Ok(())
    }
}

fn configure(folder: &Path, name: &str, uri: &str, further: &Value) -> anyhow::Result<PathBuf> {
    let mut config = json!({
        "mongohost": uri,
        "database": "faults",
        "plugin_dirs": ["plugins"],
        "lease": LEASE,
        "janitor": { "every": 2 },
        "notifications": { "allow": ["127.0.0.1"] },
        // By this, its processes are known.
        "plugin_environment": [MARK],
    });
    for (key, value) in further.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, config.to_string())?;
    Ok(path)
}
