//! A server with a key, and a database.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::model::{QueueId, Task};
use disbatch_core::secrets::{Keys, Sealed, new_key};
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use futures::TryStreamExt;
use mongodb::Collection;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{interval, timeout};

use crate::server::Server;

/// How long something may take that happens within moments.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and what it works with.
pub struct World {
    pub database: TestDatabase,
    pub store: Store,
    pub server: Server,
    /// The queue `mail`.
    pub queue: ObjectId,
    /// What must be nowhere.
    marker: String,
    keys: Keys,
    _folder: TempDir,
}

/// The configuration of a server on this database, with further keys.
pub fn config(database: &TestDatabase, further: &Value) -> Value {
    let mut config = json!({
        "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"],
        "web_extensions": ["Disbatch::Web::Tasks", "Disbatch::Web::V3"],
    });
    for (key, value) in further.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// Writes a file with a new key, and gives the key.
pub fn write_key(path: &Path, mode: u32) -> anyhow::Result<Keys> {
    let key = new_key()?;
    std::fs::write(path, format!("# made for a test\n{}\n", *key))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(Keys::of(Some(&key), None)?)
}

/// A database with the queue `mail`.
pub async fn database() -> anyhow::Result<(TestDatabase, Store, ObjectId)> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let store = Store::with_clock(database.database.clone(), Arc::new(SystemClock));
    store.ensure_indexes().await?;
    let queue = ObjectId::new();
    let document = doc! { "_id": queue, "name": "mail", "plugin": "My::Plugin", "threads": 1 };
    database.database.collection("queues").insert_one(document).await?;
    Ok((database, store, queue))
}

/// What a server answers to POST.
pub async fn post(server: &Server, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
    let response = server.request(Method::POST, path).json(body).send().await?;
    let (status, text) = (response.status().as_u16(), response.text().await?);
    Ok((status, serde_json::from_str(&text).with_context(|| format!("{status} {text}"))?))
}

impl World {
    /// Starts the server.
    pub async fn new() -> anyhow::Result<Self> {
        let (database, store, queue) = database().await?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("secrets.key");
        let keys = write_key(&path, 0o600)?;
        let server = Server::start(&config(&database, &json!({ "secrets": { "key_file": path } }))).await?;
        let marker = format!("marker{}{}", ObjectId::new().to_hex(), ObjectId::new().to_hex());
        Ok(Self { database, store, server, queue, marker, keys, _folder: folder })
    }

    /// What the plugin is to get.
    pub fn secret(&self) -> Value {
        json!({ "password": self.marker, "deeper": [{ "$oid": self.marker }] })
    }

    pub fn tasks(&self) -> Collection<Document> {
        self.database.database.collection("tasks")
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        post(&self.server, path, body).await
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let text = self.server.request(Method::GET, path).send().await?.text().await?;
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }

    /// What those are told who look at a page that changes by itself, until this part has come.
    pub async fn told(&self, path: &str, part: &str) -> anyhow::Result<String> {
        let mut events = self.server.request(Method::GET, path).send().await?;
        let mut text = String::new();
        while !text.contains(part) {
            let chunk = timeout(PATIENCE, events.chunk()).await.with_context(|| format!("only {text}"))??;
            text.push_str(&String::from_utf8_lossy(&chunk.with_context(|| format!("only {text}"))?));
        }
        Ok(text)
    }

    /// Submits tasks with secure parameters, and gives the id of the first.
    pub async fn submit(&self, further: Value) -> anyhow::Result<ObjectId> {
        let mut body = json!({ "queue": "mail", "params": { "a": 1 }, ".secure_params": self.secret() });
        for (key, value) in further.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let (status, answer) = self.post("/tasks", &body).await?;
        ensure!(status == 200, "{status} {answer}");
        let id = answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str();
        Ok(ObjectId::parse_str(id.with_context(|| answer.to_string())?)?)
    }

    /// Has a bulk job retry what has ended, and waits until it has retried this task.
    pub async fn until_retried(&self, task: ObjectId) -> anyhow::Result<()> {
        let job = json!({ "action": "retry", "filter": { "queue": "mail" } });
        let (status, answer) = self.post("/bulk", &job).await?;
        ensure!(status == 202, "{status} {answer}");
        let tasks = self.tasks();
        let queued = async {
            let mut looks = interval(Duration::from_millis(20));
            while tasks.find_one(doc! { "_id": task, "status": -2 }).await?.is_none() {
                looks.tick().await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, queued).await.context("the bulk job retries nothing")?
    }

    /// What is stored of the secure parameters of all tasks that have some.
    pub async fn sealed(&self) -> anyhow::Result<Vec<Bson>> {
        let found = self.tasks().find(doc! { "secure_params": { "$exists": true } }).await?;
        let tasks: Vec<Document> = found.try_collect().await?;
        Ok(tasks.into_iter().filter_map(|mut task| task.remove("secure_params")).collect())
    }

    /// What a plugin would get of that.
    pub fn open(&self, field: &Bson) -> anyhow::Result<Value> {
        let queue = QueueId(self.queue);
        let task = doc! { "_id": ObjectId::new(), "queue": queue, "status": 0, "secure_params": field };
        let task: Task = bson::deserialize_from_document(task)?;
        let sealed = Sealed::of(&task)?.context("nothing")?;
        Ok(self.keys.open(queue, &sealed)?.value().clone())
    }

    /// Fails if a text has the secret, or what is stored of it.
    pub fn shows_nothing(&self, text: &str) -> anyhow::Result<()> {
        let key = self.keys.ids().next().context("no key")?.as_str();
        for part in [&*self.marker, "\"secure_params\"", key] {
            ensure!(!text.contains(part), "{part} is in {text}");
        }
        Ok(())
    }

    /// Fails if any document has the secret, whatever its collection and its type.
    pub async fn stores_nothing(&self) -> anyhow::Result<()> {
        let mut looked_at = 0;
        for name in self.database.database.list_collection_names().await? {
            let all = self.database.database.collection::<RawDocumentBuf>(&name).find(doc! {}).await?;
            let all: Vec<RawDocumentBuf> = all.try_collect().await?;
            looked_at += all.len();
            for document in all {
                let has =
                    document.as_bytes().windows(self.marker.len()).any(|part| part == self.marker.as_bytes());
                ensure!(!has, "{name} has it: {document:?}");
            }
        }
        ensure!(looked_at > 1, "only {looked_at} documents");
        Ok(())
    }
}
