//! The recordings.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;

/// One request and what Perl Disbatch answered.
#[derive(Debug, Clone, Deserialize)]
pub struct Exchange {
    /// What it tries.
    pub name: String,
    /// The configuration of the server.
    pub server: String,
    pub request: Request,
    /// The answer; nothing if it is not told.
    pub response: Option<Response>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Request {
    /// GET, POST ..
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header fields.
    pub headers: BTreeMap<String, String>,
    pub body: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Response {
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// The body; nothing for pages and files, which are this project's own.
    pub body: Option<String>,
}

/// All exchanges, in order.
pub fn all() -> anyhow::Result<Vec<Exchange>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/exchanges.jsonl");
    let text = std::fs::read_to_string(path).context(path)?;
    text.lines().map(|line| serde_json::from_str(line).context("odd recording")).collect()
}

/// The ids in an answer that is not told, as later exchanges use them.
pub fn ids_told_elsewhere(name: &str) -> Option<&'static str> {
    let three = "6b0003bb686c8275d8013333 6b0003bb686c8275d8013334 6b0003bb686c8275d8013335";
    (name == "tasks.create.array").then_some(three)
}

/// The newest id is another one when several processes make them, as those of Perl did: then the answer counts
/// as the recorded one.
pub fn without_chance(name: &str, recorded: &Response, answer: &Response) -> Response {
    if name == "legacy4.search.sort" {
        return Response { body: answer.body.clone(), ..recorded.clone() };
    }
    recorded.clone()
}
