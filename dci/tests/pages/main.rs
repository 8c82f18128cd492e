//! Pages of the built `dci` as browsers load them: what they weigh, what they may do, and how they change by themselves.

#[path = "../replay/server.rs"]
mod server;
mod tasks;
mod things;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bson::doc;
use bson::oid::ObjectId;
use disbatch_mongod::testing::{self, TestDatabase};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use server::Server;
use tokio::time::timeout;

/// How long to wait for something that should happen within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a first visit may weigh, compressed.
const LIGHT: usize = 104 * 1024;

struct World {
    database: TestDatabase,
    server: Server,
    queue: ObjectId,
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        let database = TestDatabase::create(testing::server().await?).await?;
        let queue = ObjectId::new();
        let document = doc! { "_id": queue, "name": "<mail>", "plugin": "My::Plugin", "threads": 1 };
        database.database.collection("queues").insert_one(document).await?;
        let config =
            json!({ "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"] });
        Ok(Self { server: Server::start(&config).await?, database, queue })
    }

    async fn get(&self, path: &str, encoding: &str) -> anyhow::Result<Response> {
        let request = self.server.request(Method::GET, path).header("accept", "text/html");
        Ok(request.header("accept-encoding", encoding).send().await?.error_for_status()?)
    }
}

/// Reads an answer until it contains `wanted`, and returns what came.
async fn until(response: &mut Response, wanted: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = timeout(PATIENCE, response.chunk()).await.with_context(|| format!("only {text:?}"))??;
        let Some(chunk) = chunk else { bail!("{wanted:?} does not come after {text:?}") };
        text.push_str(std::str::from_utf8(&chunk)?);
    }
    Ok(text)
}

/// The addresses of assets in a page.
fn assets(html: &str) -> BTreeSet<String> {
    let named = html.split("=\"/assets/").skip(1).filter_map(|rest| rest.split('"').next());
    named.map(|name| format!("/assets/{name}")).collect()
}

#[tokio::test]
async fn a_first_visit_is_light_and_later_ones_load_no_assets() -> anyhow::Result<()> {
    let world = World::new().await?;
    let html = world.get("/", "identity").await?.text().await?;
    let assets = assets(&html);
    ensure!(assets.len() >= 6, "{assets:?}");
    let mut weight = world.get("/", "gzip").await?.bytes().await?.len();
    for asset in assets {
        let response = world.get(&asset, "gzip").await?;
        let cached = response.headers().get("cache-control").context("no Cache-Control")?.to_str()?;
        assert!(cached.contains("immutable"), "{asset}: {cached}");
        weight += response.bytes().await?.len();
    }
    assert!(weight < LIGHT, "{weight} bytes");
    let response = world.get("/assets/app.css", "identity").await?;
    let tag = response.headers().get("etag").context("no ETag")?.clone();
    let again = world.server.request(Method::GET, "/assets/app.css").header("if-none-match", tag);
    assert_eq!(again.send().await?.status(), 304);
    world.database.drop_database().await
}

#[tokio::test]
async fn pages_run_their_own_scripts_only() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = format!("/queues/{}", world.queue);
    let groups = format!("{queue}/groups");
    let more = [
        "/nodes", "/plugins", "/workers", "/files", "/audit", "/users", "/account", "/login", "/about",
        &queue, &groups,
    ];
    for path in
        ["/", "/queues", "/tasks", "/schedules", "/schedules/new", "/calendars", "/bulk", "/balance", "/docs"]
            .into_iter()
            .chain(more)
    {
        let response = world.get(path, "identity").await?;
        assert_eq!(response.headers()["content-type"], "text/html", "{path}");
        let policy = response.headers()["content-security-policy"].to_str()?.to_owned();
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{path}: {policy}");
        let html = response.text().await?;
        for script in html.split("<script").skip(1) {
            let (tag, rest) = script.split_once('>').context("a tag without an end")?;
            assert!(tag.contains(" src=\"/assets/") && rest.starts_with("</script>"), "{path}: {script}");
        }
        for inline in [" style=\"", "<style", " onclick=", "javascript:"] {
            assert!(!html.contains(inline), "{path}: {inline}");
        }
        assert!(html.contains("class=\"skip\"") && html.contains("<html lang=\"en\">"), "{path}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn the_overview_tells_what_changes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue;
    let mut told = world.server.request(Method::GET, "/ui/overview").send().await?;
    assert_eq!(told.headers()["content-type"], "text/event-stream");
    let first = until(&mut told, "</table>").await?;
    assert!(first.starts_with("event: version\n") && first.contains("&#60;mail&#62;"), "{first}");
    let change = |body: Value| {
        let request = world.server.request(Method::POST, &format!("/queues/{queue}"));
        request.json(&body).send()
    };
    assert_eq!(change(json!({ "threads": 7 })).await?.status(), 200);
    let text = until(&mut told, "name=\"threads\" value=\"7\"").await?;
    assert!(!text.contains("<table"), "only the row has changed: {text}");
    let task = doc! { "_id": ObjectId::new(), "queue": queue, "status": -2, "node": null, "params": {} };
    world.database.database.collection("tasks").insert_one(task).await?;
    until(&mut told, "No node is alive: nothing runs the tasks that wait.").await?;
    world.database.drop_database().await
}

#[tokio::test]
async fn forms_without_script_store_what_scripts_store() -> anyhow::Result<()> {
    let world = World::new().await?;
    let path = format!("/queues/{}", world.queue);
    let form = [(".then", "/"), ("threads", "5")];
    let response = world.server.request(Method::POST, &path).form(&form).send().await?;
    assert_eq!((response.status().as_u16(), &response.headers()["location"]), (303, &"/".parse()?));
    let queue: Value =
        serde_json::from_str(&world.server.request(Method::GET, &path).send().await?.text().await?)?;
    assert_eq!(queue["threads"], json!(5));
    let form = [(".then", "/"), ("name", "new"), ("plugin", "My::Plugin")];
    let made = world.server.request(Method::POST, "/queues").form(&form).send().await?;
    assert_eq!(made.status(), 303);
    let form = [(".then", "/"), ("name", "other"), ("plugin", "<Nobody's>")];
    let refused = world.server.request(Method::POST, "/queues").form(&form).send().await?;
    assert_eq!(refused.status(), 400);
    let html = refused.text().await?;
    assert!(html.contains("<!DOCTYPE html>") && html.contains("Unknown plugin"), "{html}");
    let html = world.get("/", "identity").await?.text().await?;
    assert!(html.contains(">new</a>") && html.contains("&#60;mail&#62;"), "{html}");
    world.database.drop_database().await
}
