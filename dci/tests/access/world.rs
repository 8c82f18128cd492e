//! A DCI with users, two queues, and tasks.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope, UserName};
use disbatch_core::clock::SystemClock;
use disbatch_core::model::QueueId;
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::server::Server;

/// Everybody's password.
pub const PASSWORD: &str = "correct horse battery";

/// What nobody may see who has no rights on the second queue.
pub const MARKER: &str = "zyxw-not-for-you-9173";

/// A DCI with users.
pub struct World {
    pub database: TestDatabase,
    pub store: Store,
    pub server: Server,
    /// The first queue, which `guest` may see.
    pub mine: QueueId,
    /// The second.
    pub other: QueueId,
}

impl World {
    /// Users that are called as their roles, and `guest`, who has the role `viewer` on the first queue alone.
    pub async fn new() -> anyhow::Result<Self> {
        Self::with(json!({})).await
    }

    /// The same with more in the configuration.
    pub async fn with(more: Value) -> anyhow::Result<Self> {
        let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
        let store = Store::with_clock(database.database.clone(), Arc::new(SystemClock));
        store.ensure_indexes().await?;
        let [mine, other] = [QueueId(ObjectId::new()), QueueId(ObjectId::new())];
        store.insert_queue(doc! { "_id": mine, "name": "mine", "plugin": "My::Plugin" }).await?;
        store.insert_queue(doc! { "_id": other, "name": MARKER, "plugin": "My::Plugin" }).await?;
        // One hash for all, as making one takes a while.
        let hash = PasswordHash::of(PASSWORD)?;
        for role in Role::ALL {
            store.add_user(&role.as_str().parse()?, Some(role), &[], Some(&hash)).await?;
        }
        let grant = Grant { scope: Scope::Queue(mine), role: Role::Viewer };
        store.add_user(&"guest".parse()?, None, &[grant], Some(&hash)).await?;
        let mut config = json!({
            "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"], "monitoring": true,
            "web_extensions": ["Disbatch::Web::Tasks", "Disbatch::Web::V3"],
        });
        if let (Some(config), Some(more)) = (config.as_object_mut(), more.as_object()) {
            config.extend(more.clone());
        }
        let server = Server::start(&config).await?;
        Ok(Self { database, store, server, mine, other })
    }

    /// A task of a queue that has ended, with the marker in it.
    pub async fn task(&self, queue: QueueId) -> anyhow::Result<ObjectId> {
        let id = ObjectId::new();
        let now = DateTime::from_millis(1_795_163_067_344);
        let task: Document = doc! {
            "_id": id, "queue": queue.0, "status": 2, "params": { "to": MARKER }, "stdout": MARKER,
            "stderr": MARKER, "node": "vm", "ctime": now, "mtime": now, "complete": true,
        };
        self.database.database.collection("tasks").insert_one(task).await?;
        Ok(id)
    }

    /// A bulk job about a queue, which is over.
    pub async fn job(&self, queue: QueueId) -> anyhow::Result<ObjectId> {
        let id = ObjectId::new();
        let now = DateTime::from_millis(1_795_163_067_344);
        let job: Document = doc! {
            "_id": id, "action": "cancel", "filter": { "queue": queue.0 }, "reason": MARKER, "by": "somebody",
            "state": "done", "total": 1_i64, "done": 1_i64, "skipped": 0_i64, "errors": [], "position": null,
            "pending": [], "newest": id, "created": now, "updated": now, "instance": "gone",
        };
        self.database.database.collection("bulk").insert_one(job).await?;
        Ok(id)
    }

    /// An array of a queue, which is done.
    pub async fn array(&self, queue: QueueId) -> anyhow::Result<ObjectId> {
        let id = ObjectId::new();
        let array: Document = doc! {
            "_id": id, "queue": queue.0, "words": MARKER, "count": 1_i64, "next_index": 1_i64, "key": "item",
            "state": "done", "rev": id,
        };
        self.database.database.collection("arrays").insert_one(array).await?;
        Ok(id)
    }

    /// A schedule of a queue, of the user `submitter`.
    pub async fn schedule(&self, queue: QueueId) -> anyhow::Result<ObjectId> {
        let id = ObjectId::new();
        let schedule: Document = doc! {
            "_id": id, "name": format!("{MARKER} {id}"), "queue": queue.0, "params": { "to": MARKER }, "cron": "@daily",
            "zone": "UTC", "overlap": "skip", "owner": "submitter", "paused": true, "rev": 1_i64,
        };
        self.database.database.collection("schedules").insert_one(schedule).await?;
        Ok(id)
    }

    /// A request of somebody, with their password.
    pub fn request(&self, method: Method, path: &str, user: Option<&str>) -> RequestBuilder {
        let request = self.server.request(method, path);
        match user {
            Some(user) => request.basic_auth(user, Some(PASSWORD)),
            None => request,
        }
    }

    pub fn name(name: &str) -> anyhow::Result<UserName> {
        Ok(name.parse()?)
    }
}
