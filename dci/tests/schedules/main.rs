//! Schedules and calendars of the built `dci`: each route, who may use it, and the pages.

mod calendars;
mod calls;
mod pages;
mod roles;
mod runs;
#[path = "../replay/server.rs"]
mod server;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::Document;
use bson::oid::ObjectId;
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::clock::SystemClock;
use disbatch_core::model::QueueId;
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use server::Server;

/// How long to wait for something that should happen within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everybody's password.
const PASSWORD: &str = "correct horse battery";

/// A DCI, and the queues `<mail>` and `reports`.
struct World {
    database: TestDatabase,
    store: Store,
    server: Server,
    mail: QueueId,
    reports: QueueId,
}

impl World {
    /// Nobody is asked who they are.
    async fn new() -> anyhow::Result<Self> {
        let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
        let store = Store::with_clock(database.database.clone(), Arc::new(SystemClock));
        store.ensure_indexes().await?;
        let [mail, reports] = [QueueId(ObjectId::new()), QueueId(ObjectId::new())];
        store.insert_queue(bson::doc! { "_id": mail, "name": "<mail>", "plugin": "My::Plugin" }).await?;
        store.insert_queue(bson::doc! { "_id": reports, "name": "reports", "plugin": "My::Plugin" }).await?;
        let config =
            json!({ "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"] });
        Ok(Self { server: Server::start(&config).await?, database, store, mail, reports })
    }

    /// The same with users: `boss` operates everything, `ann` and `ben` may submit to `<mail>`, `vic` may look at it, and `rob`
    /// may submit to `reports`.
    async fn with_users() -> anyhow::Result<Self> {
        let world = Self::new().await?;
        // One hash for all, as making one takes a while.
        let hash = PasswordHash::of(PASSWORD)?;
        let on = |queue: QueueId, role| Grant { scope: Scope::Queue(queue), role };
        let users = [
            ("boss", Some(Role::Operator), vec![]),
            ("ann", None, vec![on(world.mail, Role::Submitter)]),
            ("ben", None, vec![on(world.mail, Role::Submitter)]),
            ("vic", None, vec![on(world.mail, Role::Viewer)]),
            ("rob", None, vec![on(world.reports, Role::Submitter)]),
        ];
        for (name, role, grants) in users {
            world.store.add_user(&name.parse()?, role, &grants, Some(&hash)).await?;
        }
        Ok(world)
    }

    fn request(&self, method: Method, path: &str, user: Option<&str>) -> RequestBuilder {
        let request = self.server.request(method, path);
        match user {
            Some(user) => request.basic_auth(user, Some(PASSWORD)),
            None => request,
        }
    }

    /// What is answered to JSON: the status, and what it says.
    async fn call(&self, method: Method, path: &str, body: Value) -> anyhow::Result<(u16, Value)> {
        self.call_as(None, method, path, body).await
    }

    async fn call_as(
        &self,
        user: Option<&str>,
        method: Method,
        path: &str,
        body: Value,
    ) -> anyhow::Result<(u16, Value)> {
        let request = self.request(method.clone(), path, user);
        let request = if method == Method::GET { request } else { request.json(&body) };
        let answer = request.send().await?;
        let (status, text) = (answer.status().as_u16(), answer.text().await?);
        Ok((
            status,
            serde_json::from_str(&text).with_context(|| format!("{method} {path}: {status} {text}"))?,
        ))
    }

    /// What a form without script is answered.
    async fn form(&self, path: &str, form: &[(&str, &str)]) -> anyhow::Result<Response> {
        let request = self.server.request(Method::POST, path).header("accept", "text/html");
        Ok(request.form(form).send().await?)
    }

    async fn page(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let answer = self.server.request(Method::GET, path).header("accept", "text/html").send().await?;
        let status = answer.status().as_u16();
        ensure!(answer.headers()["content-type"] == "text/html", "{path}: {status}");
        Ok((status, answer.text().await?))
    }

    /// A schedule of `<mail>` that is called `nightly`.
    async fn nightly(&self) -> anyhow::Result<Value> {
        let body = json!({
            "name": "nightly", "queue": "<mail>", "cron": "0 3 * * *", "zone": "Europe/Berlin", "params": { "to": "<all>" },
        });
        let (status, made) = self.call(Method::POST, "/schedules", body).await?;
        ensure!(status == 201, "{status} {made}");
        Ok(made)
    }

    async fn tasks(&self, filter: Document) -> anyhow::Result<u64> {
        let tasks = self.database.database.collection::<Document>("tasks");
        Ok(tasks.count_documents(filter).await?)
    }

    async fn end(self) -> anyhow::Result<()> {
        self.database.drop_database().await
    }
}

/// Where an answer leads to.
fn next(answer: &Response) -> anyhow::Result<String> {
    let location = answer.headers().get("location").context("it leads nowhere")?;
    Ok(location.to_str()?.to_owned())
}

fn id_of(answer: &Value) -> anyhow::Result<ObjectId> {
    let id = answer["id"].as_str().with_context(|| format!("no id in {answer}"))?;
    Ok(ObjectId::parse_str(id)?)
}
