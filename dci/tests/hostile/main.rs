//! Whatever is sent to whatever address: the answer is no 5xx, comes in time, and is JSON where it says so.

mod filters;
#[path = "../replay/server.rs"]
mod server;

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::clock::SystemClock;
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use reqwest::Method;
use serde_json::{Map, Value, json};
use server::Server;
use tokio::runtime::Runtime;

/// Longer than this nothing may take.
const IN_TIME: Duration = Duration::from_secs(20);

/// Requests for each run of the test.
const CASES: u32 = 1500;

const PATHS: [&str; 66] = [
    "/",
    "/docs",
    "/openapi.json",
    "/assets/app.css",
    "/nope/{}",
    "/info",
    "/monitoring",
    "/balance",
    "/plugins",
    "/nodes",
    "/nodes/vm",
    "/nodes/{}",
    "/queues",
    "/queues/q1",
    "/queues/{}",
    "/tasks",
    "/tasks/6b0003bb686c8275d8013333",
    "/tasks/{}",
    "/tasks/search",
    "/tasks/q1",
    "/tasks/q1/users",
    "/tasks/q1/{}",
    "/scheduler-json",
    "/queue-prototypes-json",
    "/set-queue-attr-json",
    "/start-queue-json",
    "/delete-queue-json",
    "/queue-create-tasks-json",
    "/queue-create-tasks-from-query-json",
    "/search-tasks-json",
    "/about",
    "/audit",
    "/bulk",
    "/bulk/6b0003bb686c8275d8014444",
    "/ui/overview",
    "/ui/throughput",
    "/ui/tasks?.ids=6b0003bb686c8275d8013333",
    "/ui/bulk",
    "/ui/queues/6b0003bb686c8275d70dc2f1/tasks",
    "/ui/queues/6b0003bb686c8275d70dc2f1/chart",
    "/ui/queues/{}/tasks",
    "/ui/nodes/{}/chart",
    "/ui/balance",
    "/ui/balance/check",
    "/ui/balance/disable",
    "/schedules",
    "/schedules/new",
    "/schedules/preview",
    "/schedules/{}",
    "/schedules/{}/backfill",
    "/schedules/{}/preview",
    "/calendars",
    "/calendars/{}",
    "/ui/calendars/{}/delete",
    "/workers",
    "/workers/{}",
    "/workers/validate",
    "/workers/import",
    "/ui/workers/{}",
    "/ui/workers/{}/delete",
    "/files",
    "/files/{}",
    "/files/{}/content/{}",
    "/files/contents/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/0",
    "/files/versions/6b0003bb686c8275d8013333/entries",
    "/ui/files/{}/delete",
];

const KEYS: [&str; 74] = [
    "definition",
    "engine",
    "http",
    "url",
    "worker",
    "documents",
    "cron",
    "zone",
    "from",
    "to",
    "calendars",
    "dates",
    "name",
    "plugin",
    "threads",
    "maxthreads",
    "queue",
    "params",
    "collection",
    "filter",
    "options",
    "limit",
    "skip",
    "sort",
    "count",
    "terse",
    "pretty",
    "id",
    "status",
    "node",
    "_id",
    "ctime",
    ".limit",
    ".skip",
    ".count",
    ".fields",
    ".full",
    ".epoch",
    ".terse",
    ".pretty",
    "max_tasks",
    "queues",
    "disabled",
    "queueid",
    "attr",
    "value",
    "type",
    "object",
    "jsonfilter",
    "$in",
    "$or",
    "$where",
    "$oid",
    "a.b",
    "",
    "nul\0",
    "$bad",
    ".then",
    ".preview",
    ".ids",
    ".base",
    ".undo",
    "json",
    "hours",
    "until",
    "times",
    "tiers",
    "span",
    "of",
    ".files",
    ".version",
    ".after",
    "entries",
    "length",
];

/// None of them is `tasks`: tasks made of all tasks would double with every request.
const TEXTS: [&str; 26] = [
    "q1",
    "users",
    "Disbatch::Plugin::Demo",
    "6b0003bb686c8275d8013333",
    "000000000000000000000000",
    "threads",
    "",
    "0",
    "1",
    "-1",
    "1.5",
    "99999999999999999999999",
    "1e999",
    "abc",
    "\0",
    "é☃",
    "{",
    "{}",
    "[]",
    "[{}]",
    "{\"a\":1}",
    "[\"status\"]",
    "{\"a\":{\"$slice\":1}}",
    "document.a.b",
    "* 07:00",
    "$a",
];

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![prop::sample::select(&TEXTS[..]).prop_map(str::to_owned), any::<String>()];
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!({ "$oid": "q1" })),
        Just(json!({ "$date": {} })),
        any::<bool>().prop_map(Value::from),
        prop_oneof![any::<i64>(), -3..200_i64].prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> + Clone {
    prop_oneof![9 => prop::sample::select(&KEYS[..]).prop_map(str::to_owned), 1 => any::<String>()]
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((key(), value()), 0..6).prop_map(|pairs| pairs.into_iter().collect())
}

/// A body that is nearly right: these keys belong together.
fn nearly_right() -> impl Strategy<Value = Map<String, Value>> {
    let sets = [
        &["queue", "params"][..],
        &["queue", "params", "collection", "filter"],
        &["filter", "params"],
        &["filter", "options", "count", "terse"],
        &["name", "plugin"],
        &["max_tasks", "queues"],
        &["queueid", "object"],
        &["queueid", "collection", "jsonfilter", "params"],
        &["queueid", "attr", "value"],
        &["queue", "filter", "limit", "count"],
        &["type", "name"],
        &["queue", "status", ".limit"],
        &["max_tasks", "queues", ".base", ".undo"],
        &["times", "tiers"],
        &["hours", ".then"],
        &["json"],
    ];
    let usual = json!({ "queue": "q1", "queueid": "q1", "collection": "users", "plugin": "Disbatch::Plugin::Demo",
        "type": "Disbatch::Plugin::Demo", "attr": "threads", "filter": {}, "params": [{"a": 1}] });
    (prop::sample::select(sets.to_vec()), prop::collection::vec((value(), any::<bool>()), 4)).prop_map(
        move |(keys, values)| {
            let pair = |(key, (value, odd)): (&&str, (Value, bool))| {
                let usual = usual.get(key).filter(|_| !odd).cloned();
                ((*key).to_owned(), usual.unwrap_or(value))
            };
            keys.iter().zip(values).map(pair).collect()
        },
    )
}

#[derive(Debug, Clone)]
enum Body {
    Json(Value),
    Form(Vec<(String, String)>),
    Query(Vec<(String, String)>),
    Bytes(bool, Vec<u8>),
}

fn body() -> impl Strategy<Value = Body> {
    let pairs =
        prop::collection::vec((key(), prop::sample::select(&TEXTS[..]).prop_map(str::to_owned)), 0..6);
    prop_oneof![
        3 => nearly_right().prop_map(|map| Body::Json(map.into())),
        2 => object().prop_map(|map| Body::Json(map.into())),
        1 => value().prop_map(Body::Json),
        1 => pairs.clone().prop_map(Body::Form),
        2 => pairs.prop_map(Body::Query),
        1 => (any::<bool>(), any::<Vec<u8>>()).prop_map(|(json, bytes)| Body::Bytes(json, bytes)),
    ]
}

#[derive(Debug, Clone)]
struct Sent {
    method: Method,
    path: String,
    html: bool,
    body: Body,
}

fn sent() -> impl Strategy<Value = Sent> {
    let methods = [Method::GET, Method::POST, Method::POST, Method::DELETE, Method::HEAD, Method::PUT];
    let hole = prop_oneof![prop::sample::select(&TEXTS[..]).prop_map(str::to_owned), any::<String>()];
    (prop::sample::select(methods.to_vec()), prop::sample::select(&PATHS[..]), hole, any::<bool>(), body())
        .prop_map(|(method, path, hole, html, body)| {
            let hole: String = hole.bytes().map(|byte| format!("%{byte:02x}")).collect();
            // The queue that others want to use stays.
            let method = if path == "/queues/q1" && method == Method::DELETE { Method::GET } else { method };
            Sent { method, path: path.replace("{}", &hole), html, body }
        })
}

async fn check(server: &Server, sent: Sent) -> anyhow::Result<()> {
    let request = server.request(sent.method.clone(), &sent.path).timeout(IN_TIME);
    let request = request.header("accept", if sent.html { "text/html" } else { "application/json" });
    let request = match sent.body {
        Body::Json(value) => request.json(&value),
        Body::Form(pairs) => request.form(&pairs),
        Body::Query(pairs) => request.query(&pairs),
        Body::Bytes(json, bytes) => {
            let kind = if json { "application/json" } else { "application/x-www-form-urlencoded" };
            request.header("content-type", kind).body(bytes)
        }
    };
    let response = request.send().await?;
    let status = response.status();
    // What a form leads to has a body of its own.
    if status.is_redirection() {
        return Ok(());
    }
    let kind = response.headers().get("content-type").context("no content type")?.to_str()?.to_owned();
    if kind == "text/event-stream" {
        // It goes on for as long as somebody listens.
        ensure!(status == 200, "{status}");
        return Ok(());
    }
    let body = response.text().await?;
    ensure!(status.as_u16() < 500, "{status}: {body}");
    if kind == "application/json" && sent.method != Method::HEAD {
        let _json: Value = serde_json::from_str(&body).with_context(|| format!("no JSON: {body}"))?;
    }
    Ok(())
}

async fn start() -> anyhow::Result<(TestDatabase, Server)> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let store = Store::with_clock(database.database.clone(), std::sync::Arc::new(SystemClock));
    store.ensure_indexes().await?;
    let insert = async |collection: &str, document| {
        database.database.collection::<bson::Document>(collection).insert_one(document).await
    };
    let queue = ObjectId::parse_str("6b0003bb686c8275d70dc2f1")?;
    insert("queues", doc! { "_id": queue, "name": "q1", "plugin": "Disbatch::Plugin::Demo" }).await?;
    insert("nodes", doc! { "node": "vm" }).await?;
    insert("users", doc! { "a": { "b": 1 } }).await?;
    let config = json!({ "mongohost": database.uri, "database": database.name,
        "web_root": env!("CARGO_MANIFEST_DIR"), "plugins": ["Disbatch::Plugin::Demo"], "balance": { "enabled": 1 },
        "web_extensions": { "Disbatch::Web::Tasks": null, "Disbatch::Web::V3": null } });
    let server = Server::start(&config).await?;
    Ok((database, server))
}

#[test]
fn nothing_that_is_sent_is_an_internal_error() -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let (database, server) = runtime.block_on(start())?;
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&sent(), |sent| {
        runtime.block_on(check(&server, sent)).map_err(|error| TestCaseError::fail(format!("{error:#}")))
    });
    runtime.block_on(database.drop_database())?;
    result.map_err(|error| anyhow::anyhow!("{error}"))
}
