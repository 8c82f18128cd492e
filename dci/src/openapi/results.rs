//! What writes answer: the results of the Perl driver under its class names. These types only describe.

use serde_json::Value;
use utoipa::ToSchema;

use super::schema::Oid;

/// The result of changing one document.
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::UpdateResult": {
    "matched_count": 1, "modified_count": 1, "upserted_id": null,
    "write_concern_errors": [], "write_errors": [],
}}))]
pub struct UpdateResult {
    #[schema(rename = "MongoDB::UpdateResult")]
    result: Update,
}

#[derive(ToSchema)]
pub struct Update {
    /// 1 if there is such a thing.
    matched_count: u64,
    /// 1 if it was not so already.
    modified_count: u64,
    /// Always null.
    upserted_id: Value,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of deleting.
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::DeleteResult": {
    "deleted_count": 1, "write_concern_errors": [], "write_errors": [],
}}))]
pub struct DeleteResult {
    #[schema(rename = "MongoDB::DeleteResult")]
    result: Delete,
}

#[derive(ToSchema)]
pub struct Delete {
    deleted_count: u64,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of creating a queue.
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::InsertOneResult": {
    "inserted_id": {"$oid": "6b0003bb686c8275d70dc2f1"}, "write_concern_errors": [], "write_errors": [],
}, "id": {"$oid": "6b0003bb686c8275d70dc2f1"}}))]
pub struct CreatedQueue {
    #[schema(rename = "MongoDB::InsertOneResult")]
    result: InsertOne,
    /// The queue's id.
    id: Oid,
}

#[derive(ToSchema)]
pub struct InsertOne {
    inserted_id: Oid,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of creating tasks.
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::InsertManyResult": {
    "acknowledged": 1, "inserted": [{"_id": {"$oid": "6b0003bb686c8275d8013333"}, "index": 0}],
    "write_concern_errors": [], "write_errors": [],
}}))]
pub struct InsertManyResult {
    #[schema(rename = "MongoDB::InsertManyResult")]
    result: InsertMany,
}

#[derive(ToSchema)]
pub struct InsertMany {
    acknowledged: u64,
    /// The ids in the order of the tasks.
    inserted: Vec<Inserted>,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

#[derive(ToSchema)]
pub struct Inserted {
    #[schema(rename = "_id")]
    oid: Oid,
    /// Counted from 0.
    index: u64,
}

/// An earlier attempt of a task, and what came out of it. What is not known is missing.
#[derive(ToSchema)]
#[schema(example = json!({
    "attempt": 1, "status": 2, "node": "worker1", "started": "2026-11-20T08:24:27",
    "ended": "2026-11-20T08:24:29", "stdout": "half\n", "stderr": null, "complete": true,
}))]
pub struct Attempt {
    /// Counted from 1.
    attempt: i64,
    /// How it ended.
    status: i64,
    node: Option<Value>,
    started: Option<Value>,
    ended: Option<Value>,
    /// Text, null, or the id of a file in `GridFS`.
    stdout: Option<Value>,
    stderr: Option<Value>,
    /// Whether all of its output is stored.
    complete: Option<bool>,
    /// Why it failed, in a line: the last one of its standard error, or what ended it.
    error: Option<String>,
    /// How its plugin ended. `output` has when the pieces of its output came, if that took a second or more: `since`, and for `stdout` and
    /// `stderr` milliseconds since then and the offset of the first byte of each, one after the other.
    exit: Option<Value>,
    /// The version of its plugin that ran it, where its queue pinned one, or tried one.
    plugin_version: Option<String>,
    /// How far its steps were, if the task has some.
    steps: Option<Vec<Value>>,
    /// The plugin's structured result.
    result: Option<Value>,
    /// Why it ended so.
    note: Option<String>,
}
