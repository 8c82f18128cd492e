//! What writes answer: the results of the Perl driver under its class names; and the failures that whole kinds of operations have in
//! common. These types only describe.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use super::schema::Oid;
use crate::json::CONTENT_TYPE;

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

type Responses = BTreeMap<String, RefOr<Response>>;

/// Of an operation that is for everybody, whoever they are.
pub enum OfAnybody {}

impl IntoResponses for OfAnybody {
    fn responses() -> Responses {
        [failure(405, "This address does not have this method; `Allow` tells which it has.")].into()
    }
}

/// Of an operation that answers without the database, once it is known who asks.
pub enum OfFixed {}

impl IntoResponses for OfFixed {
    fn responses() -> Responses {
        let mut responses = OfAnybody::responses();
        responses.extend([
            failure(401, "It is not known who asks. Browsers that ask for a page are led to `/login` instead."),
            failure(403, "Who asks may not do this."),
            failure(
                429,
                "There were too many wrong passwords or tokens; `Retry-After` tells when the next may be tried.",
            ),
        ]);
        responses
    }
}

/// Of an operation that reads.
pub enum OfRead {}

impl IntoResponses for OfRead {
    fn responses() -> Responses {
        let mut responses = OfFixed::responses();
        responses
            .extend([failure(503, "The database cannot be reached; `Retry-After` tells when to try again.")]);
        responses
    }
}

/// Of an operation that reads and takes parameters in a body.
pub enum OfSearch {}

impl IntoResponses for OfSearch {
    fn responses() -> Responses {
        let mut responses = OfRead::responses();
        responses.extend([failure(
            413,
            "The body is longer than 16 MiB, or what it has would take more than 64 MiB of memory.",
        )]);
        responses
    }
}

/// Of an operation that changes something.
pub enum OfWrite {}

impl IntoResponses for OfWrite {
    fn responses() -> Responses {
        let mut responses = OfSearch::responses();
        responses.extend([failure(
            403,
            "Who asks may not do this, or a browser says that a page of another site makes the request.",
        )]);
        responses
    }
}

/// Of what a web service says about its task.
pub enum OfCallback {}

impl IntoResponses for OfCallback {
    fn responses() -> Responses {
        let mut responses = OfAnybody::responses();
        responses.extend([
            failure(400, "The body makes no sense."),
            failure(401, "The token is not that of the task, or there is no such task."),
            failure(403, "A browser says that a page of another site makes the request."),
            failure(404, "This is no id of a task."),
            failure(408, "The body did not come in time."),
            failure(410, "The task has ended, or another attempt of it is on its way."),
            failure(413, "The body is longer than 1 MiB, or the log of the task is as long as it may be."),
            failure(503, "The database cannot be reached; `Retry-After` tells when to try again."),
        ]);
        responses
    }
}

fn failure(status: u16, description: &str) -> (String, RefOr<Response>) {
    let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
    let response = ResponseBuilder::new().description(description).content(CONTENT_TYPE, body);
    (status.to_string(), response.build().into())
}
