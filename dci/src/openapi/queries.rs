//! What is told of tasks that are found, chosen and awaited, and of those that are submitted to several queues at once. These types are
//! never made: they only describe.

use disbatch_wire::search::{ChosenTask, Waited};
use serde_json::Value;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// Tasks that were found.
#[derive(ToSchema)]
#[schema(example = json!({
    "tasks": [{
        "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "queue_name": "mail", "status": 2,
        "word": "failed", "node": "worker1", "params": {"to": "ashley"}, "ctime": "2026-11-20T08:24:27",
        "mtime": "2026-11-20T08:24:29", "attempt": 1,
    }],
    "looked_at": 1, "next": null,
}))]
pub struct FoundTasks {
    /// The newest first.
    tasks: Vec<FoundTask>,
    /// How many tasks were looked at.
    looked_at: u64,
    /// `.after` of the next search; null if all have been looked at.
    next: Option<String>,
}

/// A task. It has other fields, too, as far as they are set: `started`, `run_at`, `deadline`, `attempt`, `failures`, `error`, `exit`,
/// `progress`, `group`, `priority`, `unique`, `schedule`, `array`, `tenant`, `owner` and `tags`.
#[derive(ToSchema)]
pub struct FoundTask {
    id: String,
    /// The queue's id.
    queue: String,
    /// The queue's name; null if it is gone.
    queue_name: Option<String>,
    status: Value,
    /// The status in a word; null if it is no number.
    word: Option<String>,
    node: Option<Value>,
    /// What it was submitted with; a note in place of more than 16 KiB.
    params: Option<Value>,
    ctime: Option<Value>,
    mtime: Option<Value>,
}

/// What became of each submission, in their order.
#[derive(ToSchema)]
#[schema(example = json!({"results": [
    {"id": "6b0003bb686c8275d8013333"}, {"error": "queue not found", "status": 400},
], "submitted": 1, "refused": 1}))]
pub struct BatchAnswer {
    results: Vec<BatchResult>,
    /// How many entries were submitted.
    submitted: u64,
    refused: u64,
}

/// `id`, or `ids` if the entry had several params; or `error` and the `status` that `POST /tasks` would have answered with.
#[derive(ToSchema)]
pub struct BatchResult {
    id: Option<String>,
    ids: Option<Vec<String>>,
    error: Option<String>,
    status: Option<u16>,
}

/// One for each id, or null.
pub enum ChosenTasks {}

impl PartialSchema for ChosenTasks {
    fn schema() -> RefOr<Schema> {
        let one = AnyOfBuilder::new()
            .item(Ref::from_schema_name("ChosenTask"))
            .item(ObjectBuilder::new().schema_type(Type::Null));
        ArrayBuilder::new().items(one).into()
    }
}

impl ToSchema for ChosenTasks {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("ChosenTask".to_owned(), ChosenTask::schema()));
    }
}

/// Where a task stands; or with `.fields` these.
pub enum WaitAnswer {}

impl PartialSchema for WaitAnswer {
    fn schema() -> RefOr<Schema> {
        AnyOfBuilder::new()
            .item(Ref::from_schema_name("Waited"))
            .item(Ref::from_schema_name("ChosenTask"))
            .description(Some("Where the task stands; or with `.fields` these."))
            .into()
    }
}

impl ToSchema for WaitAnswer {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("Waited".to_owned(), Waited::schema()));
        schemas.push(("ChosenTask".to_owned(), ChosenTask::schema()));
    }
}
