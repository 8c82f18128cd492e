//! Filters of clients: what would run code on the database's server is refused, in words, wherever a filter is taken and
//! however deep it is in it; what takes the database too long is broken off.

use anyhow::ensure;
use bson::{Document, doc};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::server::Server;
use crate::start;

/// Filters, and the operator for which each is refused.
fn filters() -> Vec<(Value, &'static str)> {
    let function =
        json!({ "$function": { "body": "function () { return true }", "args": [], "lang": "js" } });
    let accumulator = json!({ "$accumulator": { "init": "function () {}", "lang": "js" } });
    vec![
        (json!({ "$where": "sleep(1000) || true" }), "$where"),
        (json!({ "a": { "$where": "true" } }), "$where"),
        (json!({ "$and": [{ "a": 1 }, { "$or": [{ "$where": "true" }] }] }), "$where"),
        (json!({ "$expr": function }), "$expr"),
        (json!({ "a": { "$elemMatch": { "b": function } } }), "$function"),
        (json!({ "a": { "$not": { "$in": [accumulator] } } }), "$accumulator"),
    ]
}

/// Everything that takes a filter, with this one.
fn requests(filter: &Value) -> Vec<(&'static str, Value)> {
    let params = json!({ "x": "document.a" });
    vec![
        ("/tasks/search", json!({ "filter": filter })),
        ("/tasks/search", json!({ "filter": filter, "count": 1 })),
        ("/search-tasks-json", json!({ "filter": filter })),
        ("/search-tasks-json", json!({ "filter": filter.to_string(), "count": 1 })),
        ("/search-tasks-json", json!({ "filter": {}, "queue": filter })),
        ("/tasks", json!({ "queue": "q1", "collection": "people", "filter": filter, "params": params })),
        ("/tasks/q1/people", json!({ "filter": filter, "params": params })),
        (
            "/queue-create-tasks-from-query-json",
            json!({ "queueid": "q1", "collection": "people", "jsonfilter": filter, "params": params }),
        ),
    ]
}

async fn post(server: &Server, path: &str, body: &Value) -> anyhow::Result<(StatusCode, String)> {
    let answer = server.request(Method::POST, path).json(body).send().await?;
    Ok((answer.status(), answer.text().await?))
}

#[tokio::test]
async fn code_is_refused_in_every_filter() -> anyhow::Result<()> {
    let (database, server) = start().await?;
    for (filter, operator) in filters() {
        for (path, body) in requests(&filter) {
            let (status, text) = post(&server, path, &body).await?;
            let said = format!("operator '{operator}' is not allowed");
            ensure!(
                status == StatusCode::BAD_REQUEST && text.contains(&said),
                "{path} {body}: {status} {text}"
            );
        }
        // There is no operator in the filter of a bulk job, and none among the fields of a task.
        let job = json!({ "action": "cancel", "filter": filter, ".preview": 1 });
        let (status, text) = post(&server, "/bulk", &job).await?;
        ensure!(
            status == StatusCode::BAD_REQUEST && text.contains("unknown param in filter"),
            "{status} {text}"
        );
        let answer = server.request(Method::GET, "/tasks").json(&json!({ "node": filter })).send().await?;
        ensure!(answer.status() == StatusCode::BAD_REQUEST, "{filter}: {}", answer.status());
    }
    let tasks = database.database.collection::<Document>("tasks").count_documents(doc! {}).await?;
    ensure!(tasks == 0, "{tasks} tasks were created");
    database.drop_database().await
}

#[tokio::test]
async fn a_search_by_a_regular_expression_is_made() -> anyhow::Result<()> {
    let (database, server) = start().await?;
    let queue = bson::oid::ObjectId::parse_str("6b0003bb686c8275d70dc2f1")?;
    let task = doc! { "queue": queue, "status": 1, "node": "aaaa", "params": { "a": "b" } };
    database.database.collection::<Document>("tasks").insert_one(task).await?;
    let filter = json!({ "node": { "$regex": "^(a+)+$" } });
    for (path, body, expected) in [
        ("/tasks/search", json!({ "filter": filter, "count": 1 }), r#"{"count":1}"#),
        ("/tasks/search", json!({ "filter": filter, "count": 1, ".archive": 1 }), r#"{"count":1}"#),
        ("/search-tasks-json", json!({ "filter": filter, "count": 1 }), "[1,1]"),
    ] {
        let (status, text) = post(&server, path, &body).await?;
        ensure!(status == StatusCode::OK && text == expected, "{path}: {status} {text}");
    }
    for (path, body) in [
        ("/tasks/search", json!({ "filter": filter })),
        ("/tasks/search", json!({ "filter": filter, ".archive": 1 })),
        ("/search-tasks-json", json!({ "filter": filter })),
    ] {
        let (status, text) = post(&server, path, &body).await?;
        let tasks: Vec<Value> = serde_json::from_str(&text)?;
        ensure!(status == StatusCode::OK && tasks.len() == 1, "{path}: {status} {text}");
    }
    database.drop_database().await
}
