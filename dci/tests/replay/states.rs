//! What happened in the database between the recorded exchanges.

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{NodeName, TaskId};
use disbatch_core::node::Beat;
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use futures::TryStreamExt;
use mongodb::{Collection, Database, IndexModel};

use crate::text::Ids;

/// The node that the recordings were made on.
const NODE: &str = "vm";

/// Makes the states that the recordings were made in.
pub struct States {
    store: Store,
    database: Database,
}

impl States {
    /// States of `database`.
    pub fn new(database: &TestDatabase) -> Self {
        let database = database.database.clone();
        Self { store: Store::with_clock(database.clone(), std::sync::Arc::new(SystemClock)), database }
    }

    /// Does what was done before the exchange `name`.
    pub async fn before(&self, name: &str, ids: &Ids) -> anyhow::Result<()> {
        match name {
            "nodes.list" => {
                self.store.ensure_indexes().await?;
                self.store.heartbeat(&NodeName::new(NODE), &Beat::default()).await?;
            }
            "tasks.create.collection" => {
                let users = [
                    doc! { "username": "foo", "migration": "test", "n": 1, "deep": { "k": "v" } },
                    doc! { "username": "bar", "migration": "test", "n": 2 },
                ];
                self.collection("users").insert_many(users).await?;
            }
            // The queue that Perl Disbatch does not create.
            "queues.create.unknown_plugin" => {
                self.collection("queues").delete_one(doc! { "name": "x" }).await?;
            }
            "done.queues" => self.run_tasks(false).await?,
            "gfs.tasks" => self.run_tasks(true).await?,
            "gfs.tasks.full_missing_chunks" => {
                let task = ids.translate("6b0003c2686c8275d91f20ed");
                self.remove_chunks(ObjectId::parse_str(task)?).await?;
            }
            "idx.params.commands" => self.index(doc! { "queue": 1, "params.commands": 1 }, None).await?,
            "idx.desc" => self.index(doc! { "ctime": -1 }, None).await?,
            "idx.text" => self.index(doc! { "params.text": "text" }, Some("words")).await?,
            "idx.custom_name" => {
                self.collection("tasks").drop_index("words").await?;
                self.index(doc! { "ctime": 1, "mtime": 1 }, Some("mine")).await?;
            }
            "idx.restored" => self.collection("tasks").drop_index("mine").await?,
            "enc.task_wide" => {
                self.collection("nodes").delete_many(doc! { "node": { "$ne": NODE } }).await?;
            }
            "queues.weird" => self.odd_queues().await?,
            other => self.before_monitoring(other).await?,
        }
        Ok(())
    }

    /// Nodes and `QueueBalance` as they are before an exchange that looks at them.
    async fn before_monitoring(&self, name: &str) -> anyhow::Result<()> {
        match name {
            "monitoring.node_fresh" | "monitoring.qb.no_timestamp" => {
                self.store.heartbeat(&NodeName::new(NODE), &Beat::default()).await?;
            }
            "monitoring.qb.ok" => self.balance("OK", "QueueBalance is running", 0).await?,
            "monitoring.qb.warning" => self.balance("WARNING", "careful", 0).await?,
            "monitoring.qb.critical" => self.balance("CRITICAL", "broken", 0).await?,
            "monitoring.qb.unknown_status" => self.balance("ODD", "what", 0).await?,
            "monitoring.qb.stale" => self.balance("OK", "QueueBalance is running", 100).await?,
            "monitoring.qb.critical_no_timestamp" => {
                self.balance("CRITICAL", "nots", 0).await?;
                let unset = doc! { "$unset": { "timestamp": 1 } };
                self.collection("balance").update_one(doc! {}, unset).await?;
            }
            "monitoring.node_stale" => {
                let set = doc! { "$set": { "timestamp": ago(100), "seen": ago(100) } };
                self.collection("nodes").update_one(doc! { "node": NODE }, set).await?;
            }
            "monitoring.node_mixed" => self.node(doc! { "node": "other", "timestamp": ago(0) }).await?,
            "monitoring.node_no_timestamp" => {
                self.store.heartbeat(&NodeName::new("other"), &Beat::default()).await?;
                self.node(doc! { "node": "nots" }).await?;
            }
            "nodes.int_timestamp" => {
                self.collection("nodes").delete_one(doc! { "node": "nots" }).await?;
                self.node(doc! { "node": "inttime", "timestamp": 1_700_000_000 }).await?;
            }
            _ => {} // Nothing happened before the others.
        }
        Ok(())
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    async fn index(&self, keys: Document, name: Option<&str>) -> anyhow::Result<()> {
        let options = mongodb::options::IndexOptions::builder().name(name.map(str::to_owned)).build();
        let index = IndexModel::builder().keys(keys).options(options).build();
        self.collection("tasks").create_index(index).await?;
        Ok(())
    }

    async fn node(&self, node: Document) -> anyhow::Result<()> {
        self.collection("nodes").insert_one(node).await?;
        Ok(())
    }

    /// What `QueueBalance` wrote so many seconds ago.
    async fn balance(&self, status: &str, message: &str, seconds: i64) -> anyhow::Result<()> {
        let fields = doc! { "status": status, "message": message, "timestamp": ago(seconds) };
        self.store.save_balance(fields).await?;
        Ok(())
    }

    async fn odd_queues(&self) -> anyhow::Result<()> {
        // One was created and deleted through other routes in between.
        self.collection("queues").delete_one(doc! { "name": "café" }).await?;
        let queues = [
            doc! { "name": "noplugin" },
            doc! { "name": "sortq", "plugin": "Disbatch::Plugin::Demo", "sort": "sideways", "threads": 0 },
        ];
        self.collection("queues").insert_many(queues).await?;
        Ok(())
    }

    /// Ends all queued tasks as the demo plugin does.
    async fn run_tasks(&self, to_files: bool) -> anyhow::Result<()> {
        let queued: Vec<Document> =
            self.collection("tasks").find(doc! { "status": -2 }).await?.try_collect().await?;
        ensure!(!queued.is_empty(), "no task is queued");
        for task in queued {
            let id = task.get_object_id("_id")?;
            let commands = task.get_document("params")?.get_str("commands").unwrap_or_default();
            let (status, stdout, stderr) = demo(commands);
            let stdout = self.stored(TaskId(id), StreamName::Stdout, &stdout, to_files).await?;
            let stderr = self.stored(TaskId(id), StreamName::Stderr, &stderr, to_files).await?;
            let set = doc! { "status": status, "stdout": stdout, "stderr": stderr, "node": NODE,
            "mtime": DateTime::from_millis(1_795_163_068_902), "complete": true };
            self.collection("tasks").update_one(doc! { "_id": id }, doc! { "$set": set }).await?;
        }
        Ok(())
    }

    async fn stored(
        &self,
        task: TaskId,
        stream: StreamName,
        text: &str,
        to_file: bool,
    ) -> anyhow::Result<Bson> {
        if !to_file {
            return Ok(if text.is_empty() { Bson::Null } else { text.into() });
        }
        let id = ObjectId::new();
        self.store.put_output(id, (task, stream), Encoding::Text, text.as_bytes()).await?;
        Ok(id.into())
    }

    async fn remove_chunks(&self, task: ObjectId) -> anyhow::Result<()> {
        let task =
            self.collection("tasks").find_one(doc! { "_id": task }).await?.context("the task is gone")?;
        let files = doc! { "$in": [task.get_object_id("stdout")?, task.get_object_id("stderr")?] };
        self.collection("tasks.chunks").delete_many(doc! { "files_id": files }).await?;
        Ok(())
    }
}

fn ago(seconds: i64) -> DateTime {
    DateTime::from_millis(SystemClock.now().timestamp_millis() - seconds * 1000)
}

/// Status, output and errors of the demo plugin for its letters a, b and c. `*` stands for all three.
fn demo(commands: &str) -> (i32, String, String) {
    let (mut status, mut stdout, mut stderr) = (1, String::new(), String::new());
    for command in commands.replace('*', "abc").chars() {
        match command {
            'a' => stdout.push_str("This is command 'a' for apple.\n"),
            'b' => stderr.push_str("This is command 'b' for banana.\n"),
            'c' => {
                stderr.push_str("This is command 'c' for cry.\n");
                status = 2;
                break;
            }
            _ => {} // Other letters do nothing here.
        }
    }
    (status, stdout, stderr)
}
