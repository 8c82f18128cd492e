//! The recordings, as far as their routes are served.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

/// One request and what Perl Disbatch answered.
#[derive(Debug, Clone, Deserialize)]
pub struct Exchange {
    /// What it tries.
    pub name: String,
    server: String,
    /// The request.
    pub request: Request,
    /// The answer; nothing if it is not told.
    pub response: Option<Response>,
}

/// A request.
#[derive(Debug, Clone, Deserialize)]
pub struct Request {
    /// GET, POST ..
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header fields.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// The body; nothing for pages, which are this project's own.
    pub body: Option<String>,
}

/// Routes that other releases of Disbatch had or that are not served yet.
const LATER: [&str; 10] = [
    "/info",
    "/balance",
    "/monitoring",
    "/js",
    "/css",
    "/images",
    "/index.html",
    "/tasks/search",
    "/nope",
    "/..",
];

/// The exchanges of the configuration `main` whose routes are served, in order.
pub fn in_scope() -> anyhow::Result<Vec<Exchange>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/exchanges.jsonl");
    let text = std::fs::read_to_string(path).context(path)?;
    let exchanges: Result<Vec<Exchange>, _> = text.lines().map(serde_json::from_str).collect();
    Ok(exchanges?.into_iter().filter_map(served).collect())
}

/// The ids in an answer that is not told, as later exchanges use them.
pub fn ids_told_elsewhere(name: &str) -> Option<&'static str> {
    let three = "6b0003bb686c8275d8013333 6b0003bb686c8275d8013334 6b0003bb686c8275d8013335";
    (name == "tasks.create.array").then_some(three)
}

fn served(exchange: Exchange) -> Option<Exchange> {
    let path = &exchange.request.path;
    let group = exchange.name.split('.').next().unwrap_or_default();
    // A client library does not send methods or paths of no meaning.
    let odd = group == "method" || path.contains("%2e") || path.starts_with("//");
    let later = LATER.iter().any(|prefix| path.starts_with(prefix)) || path.contains("-json");
    if exchange.server != "main" || odd || later {
        return None;
    }
    if group == "legacy4" { as_task_creation(exchange) } else { Some(exchange) }
}

/// What later exchanges find was partly created through routes of `Disbatch::Web::Tasks`: the same tasks are
/// created through `POST /tasks`.
fn as_task_creation(mut exchange: Exchange) -> Option<Exchange> {
    let creates = ["create.byname", "create.byid", "create.collection", "create.collection.byid"];
    if !creates.iter().any(|name| exchange.name == format!("legacy4.{name}")) {
        return None;
    }
    let body: Value = serde_json::from_str(exchange.request.body.as_deref()?).ok()?;
    let mut parts = exchange.request.path.split('/').skip(2).map(str::to_owned);
    let queue = parts.next()?;
    let body = match parts.next() {
        None => json!({ "queue": queue, "params": body }),
        Some(collection) => json!({ "queue": queue, "collection": collection, "filter": body["filter"],
            "params": body["params"] }),
    };
    exchange.request.path = "/tasks".to_owned();
    exchange.request.body = Some(body.to_string());
    Some(exchange)
}
