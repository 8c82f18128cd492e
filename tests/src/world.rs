//! One test's world: a database, a configuration, a folder for plugins and logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::live::LiveStream;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::output::StreamName;
use disbatch_core::store::{Store, collections};
use disbatch_core::task::TaskOptions;
use disbatch_mongod::testing::{self, TestDatabase};
use futures::TryStreamExt;
use mongodb::{Collection, Database};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::{Den, Finished, binary, finish};
use crate::{Script, eventually};

/// The kinds of MongoDB server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// One server, without change streams.
    Standalone,
    /// A replica set, with them.
    ReplicaSet,
}

/// One test's world.
#[derive(Debug)]
pub struct World {
    database: TestDatabase,
    folder: TempDir,
}

impl Drop for World {
    /// Kills the runners that are left: without their database they would wait for it for ever. Their guards
    /// kill the plugins.
    fn drop(&mut self) {
        let config = self.config();
        let is_ours = |entry: &std::fs::DirEntry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == config.as_os_str().as_encoded_bytes())
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        for process in processes.filter(is_ours) {
            if let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) {
                // It may have ended by now.
                let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

/// Collections that tests make.
const OF_TESTS: [&str; 2] = ["people", "users"];

impl World {
    /// A world on a server of the given kind, with the default configuration.
    pub async fn on(server: Server) -> anyhow::Result<Self> {
        let uri = match server {
            Server::Standalone => testing::standalone().await?,
            Server::ReplicaSet => testing::replica_set().await?,
        };
        Self::at(uri).await
    }

    pub async fn at(uri: String) -> anyhow::Result<Self> {
        Self::with(TestDatabase::create(uri).await?)
    }

    pub fn with(database: TestDatabase) -> anyhow::Result<Self> {
        let world = Self { database, folder: tempfile::tempdir()? };
        std::fs::create_dir(world.plugins())?;
        world.configure(json!({}))?;
        Ok(world)
    }

    /// A world on a replica set.
    pub async fn new() -> anyhow::Result<Self> {
        Self::on(Server::ReplicaSet).await
    }

    /// Writes the configuration with further keys.
    pub fn configure(&self, further: Value) -> anyhow::Result<()> {
        let mut config = json!({
            "mongohost": self.database.uri,
            "database": self.database.name,
            "plugin_dirs": ["plugins"],
            "log4perl": { "level": "DEBUG" },
        });
        let keys = further.as_object().context("the keys must be an object")?;
        for (key, value) in keys {
            config[key] = value.clone();
        }
        std::fs::write(self.config(), config.to_string())?;
        Ok(())
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config.json")
    }

    /// A folder of this test.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder that plugins are installed in.
    pub fn plugins(&self) -> PathBuf {
        self.folder.path().join("plugins")
    }

    pub fn uri(&self) -> &str {
        &self.database.uri
    }

    pub fn database(&self) -> &Database {
        &self.database.database
    }

    pub fn tasks(&self) -> Collection<Document> {
        self.database().collection("tasks")
    }

    pub fn store(&self) -> Store {
        Store::with_clock(self.database().clone(), Arc::new(SystemClock))
    }

    /// Installs a plugin and makes a queue for it.
    pub async fn script_queue(&self, script: Script<'_>, threads: i32) -> anyhow::Result<QueueId> {
        script.install(&self.plugins())?;
        self.queue(script.name, doc! { "threads": threads }).await
    }

    /// Makes a queue with the given fields besides name and plugin.
    pub async fn queue(&self, plugin: &str, fields: Document) -> anyhow::Result<QueueId> {
        let id = ObjectId::new();
        let mut queue = doc! { "_id": id, "name": format!("q{id}"), "plugin": plugin };
        queue.extend(fields);
        self.database().collection::<Document>("queues").insert_one(queue).await?;
        Ok(QueueId(id))
    }

    pub async fn update_queue(&self, queue: QueueId, fields: Document) -> anyhow::Result<()> {
        let queues = self.database().collection::<Document>("queues");
        queues.update_one(doc! { "_id": queue }, doc! { "$set": fields }).await?;
        Ok(())
    }

    /// What there is of the output of an attempt while it runs: standard output and standard error.
    pub async fn live(&self, task: TaskId, attempt: i64) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let store = self.store();
        let all = async |stream| {
            let pieces = store.read_live(LiveStream { task, attempt, stream }, 0, usize::MAX).await?;
            anyhow::Ok(pieces.into_iter().flat_map(|piece| piece.bytes).collect::<Vec<u8>>())
        };
        Ok((all(StreamName::Stdout).await?, all(StreamName::Stderr).await?))
    }

    /// Submits tasks as the DCI does.
    pub async fn submit(&self, queue: QueueId, params: Vec<Document>) -> anyhow::Result<Vec<TaskId>> {
        Ok(self.store().submit_tasks(queue, params, &TaskOptions::default()).await?.ids)
    }

    /// Submits one task that `node` has claimed already.
    pub async fn claimed(&self, queue: QueueId, params: Document, node: &str) -> anyhow::Result<TaskId> {
        let ids = self.submit(queue, vec![params]).await?;
        let id = *ids.first().context("nothing was submitted")?;
        self.set(id, doc! { "status": -1, "node": node }).await?;
        Ok(id)
    }

    /// Changes a task behind everyone's back.
    pub async fn set(&self, task: TaskId, fields: Document) -> anyhow::Result<()> {
        self.tasks().update_one(doc! { "_id": task }, doc! { "$set": fields }).await?;
        Ok(())
    }

    /// A task as it is stored.
    pub async fn task(&self, id: TaskId) -> anyhow::Result<Document> {
        self.tasks().find_one(doc! { "_id": id }).await?.with_context(|| format!("no task {id}"))
    }

    pub async fn status(&self, id: TaskId) -> anyhow::Result<i64> {
        let task = self.task(id).await?;
        match task.get("status") {
            Some(Bson::Int32(status)) => Ok(i64::from(*status)),
            Some(Bson::Int64(status)) => Ok(*status),
            other => bail!("status {other:?}"),
        }
    }

    /// Waits until a task has the given status, and returns it.
    pub async fn until_status(&self, id: TaskId, status: i64) -> anyhow::Result<Document> {
        let what = format!("task {id} to have status {status}");
        eventually(&what, || async { Ok((self.status(id).await? == status).then_some(())) }).await?;
        self.task(id).await
    }

    /// Waits until every task of a queue has ended, whatever its status.
    pub async fn until_all_ended(&self, queue: QueueId) -> anyhow::Result<Vec<Document>> {
        let open = doc! { "queue": queue, "status": { "$in": [-7, -4, -2, -1, 0] } };
        eventually("all tasks to end", || async {
            Ok((self.tasks().count_documents(open.clone()).await? == 0).then_some(()))
        })
        .await?;
        self.tasks_of(queue).await
    }

    /// All tasks of a queue in the order of their ids.
    pub async fn tasks_of(&self, queue: QueueId) -> anyhow::Result<Vec<Document>> {
        Ok(self.tasks().find(doc! { "queue": queue }).sort(doc! { "_id": 1 }).await?.try_collect().await?)
    }

    /// How many tasks of a queue match.
    pub async fn count(&self, queue: QueueId, mut filter: Document) -> anyhow::Result<u64> {
        filter.insert("queue", queue);
        Ok(self.tasks().count_documents(filter).await?)
    }

    /// Starts a DEN.
    pub fn den(&self, node: &str) -> anyhow::Result<Den> {
        self.den_with(node, &[])
    }

    pub fn den_with(&self, node: &str, arguments: &[&str]) -> anyhow::Result<Den> {
        self.den_in(node, arguments, &[])
    }

    pub fn den_in(
        &self,
        node: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Den> {
        let log = self.folder.path().join(format!("{node}.log"));
        Den::start(&self.config(), node, arguments, log, environment)
    }

    /// Starts a DEN and waits until it is at work.
    pub async fn den_at_work(&self, node: &str) -> anyhow::Result<Den> {
        let den = self.den(node)?;
        self.until_beats(node).await?;
        Ok(den)
    }

    /// Starts a DEN with another configuration file, and waits until it is at work.
    pub async fn den_at_work_with(&self, config: &Path, node: &str) -> anyhow::Result<Den> {
        let den = Den::start(config, node, &[], self.folder.path().join(format!("{node}.log")), &[])?;
        self.until_beats(node).await?;
        Ok(den)
    }

    async fn until_beats(&self, node: &str) -> anyhow::Result<()> {
        let nodes = self.database().collection::<Document>("nodes");
        eventually("the DEN's heartbeat", || async { Ok(nodes.find_one(doc! { "node": node }).await?) })
            .await?;
        Ok(())
    }

    /// Runs `dtr` for a task by hand.
    pub async fn dtr(&self, task: &str, arguments: &[&str]) -> anyhow::Result<Finished> {
        finish(self.dtr_command(task)?.args(arguments)).await
    }

    /// The command that runs `dtr` for a task.
    pub fn dtr_command(&self, task: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(binary("dtr")?);
        command.arg("--config").arg(self.config()).args(["--task", task]);
        Ok(command)
    }

    /// Runs `dtr` for a new task of `queue` and returns what was stored.
    pub async fn run_by_hand(
        &self,
        queue: QueueId,
        params: Document,
        arguments: &[&str],
    ) -> anyhow::Result<Document> {
        let id = self.claimed(queue, params, "n1").await?;
        let arguments: Vec<&str> = ["--node", "n1"].iter().chain(arguments).copied().collect();
        let run = self.dtr(&id.to_string(), &arguments).await?;
        if run.code()? != 0 {
            bail!("dtr ended with {}: {}", run.status, run.stderr);
        }
        self.task(id).await
    }

    /// The chunks of an output file in order.
    pub async fn chunks(&self, file: ObjectId) -> anyhow::Result<Vec<Document>> {
        let chunks = self.database().collection::<Document>("tasks.chunks");
        Ok(chunks.find(doc! { "files_id": file }).sort(doc! { "n": 1 }).await?.try_collect().await?)
    }

    /// The document of an output file.
    pub async fn file(&self, id: ObjectId) -> anyhow::Result<Document> {
        let files = self.database().collection::<Document>("tasks.files");
        files.find_one(doc! { "_id": id }).await?.context("no such file")
    }

    /// The collections that the programs do not declare, besides those of tests and MongoDB's own.
    pub async fn undeclared(&self) -> anyhow::Result<Vec<String>> {
        let mut there = self.database().list_collection_names().await?;
        there.retain(|name| {
            let declared = collections::ALL.iter().any(|collection| collection.name == name);
            !declared && !OF_TESTS.contains(&name.as_str()) && !name.starts_with("system.")
        });
        Ok(there)
    }

    /// Removes the database. A test that fails leaves it for a look.
    pub async fn end(self) -> anyhow::Result<()> {
        let undeclared = self.undeclared().await?;
        ensure!(undeclared.is_empty(), "not in core/src/store/collections.rs: {undeclared:?}");
        self.database.drop_database().await
    }
}
