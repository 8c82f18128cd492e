//! How rules of admission are named, and what chosen fields of tasks look like. These types are never made: they only describe.

use std::collections::BTreeMap;

use disbatch_wire::admission::AdmissionKind;
use serde_json::{Map, Value};
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

/// The rule of which scope is meant.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AdmissionScope {
    /// `all`, `queue`, `tenant` or `owner`.
    #[param(example = "queue")]
    scope: String,
    /// A queue's name or id, a tenant, or a user's login name.
    #[param(example = "mail")]
    value: Option<String>,
}

/// The same in a form.
#[derive(ToSchema)]
#[schema(example = json!({"scope": "queue", "value": "mail"}))]
pub struct AdmissionLift {
    /// Which tasks.
    scope: AdmissionKind,
    /// A queue's name or id, a tenant, or a user's login name.
    value: Option<String>,
}

/// Submissions, each as `POST /tasks` takes it, but for tasks of a collection and arrays.
#[derive(ToSchema)]
#[schema(example = json!({"tasks": [
    {"queue": "disks", "params": {"node": "node1"}},
    {"queue": "instances", "params": {"name": "web1"}, ".after": [-1]},
]}))]
pub struct NewBatch {
    /// At most 1,000 of them.
    #[schema(min_items = 1, max_items = 1000)]
    tasks: Vec<Map<String, Value>>,
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

/// Which fields of which tasks.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChosenFields {
    /// Up to 1,000 ids with commas between them.
    #[param(rename = ".ids", example = "6b0003bb686c8275d8013333,6b0003bb686c8275d8013334")]
    ids: String,
    /// Up to 50 names of fields with commas between them; `status` if none are given.
    #[param(rename = ".fields", example = "status,progress,exit")]
    fields: Option<String>,
}

/// Chosen fields of a task.
#[derive(ToSchema)]
#[schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "fields": {"status": 0, "progress": {"percent": 40}},
    "seen": "5feceb66ffc86f38d952786c6d696c79",
}))]
pub struct ChosenTask {
    #[schema(pattern = "^[0-9a-f]{24}$")]
    id: String,
    /// Those of the fields that it has.
    fields: Map<String, Value>,
    /// Tells these values from others: for `.since` of `GET /tasks/{id}/wait`.
    seen: String,
    /// Whether they are not what they were; only where that was waited for.
    changed: Option<bool>,
    /// Whether the task is over; only where a change was waited for.
    ended: Option<bool>,
    /// How many bytes of `stdout` and `stderr` there are so far; only where a change of these was waited for, while the task runs.
    live: Option<BTreeMap<String, u64>>,
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
        schemas.push(("Waited".to_owned(), super::schema::Waited::schema()));
        schemas.push(("ChosenTask".to_owned(), ChosenTask::schema()));
    }
}

/// What came of archiving a task.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d8013333", "outcome": "archived"}))]
pub struct ArchiveResult {
    id: String,
    /// `archived`, or `archived before`.
    outcome: String,
}

/// Which tasks are archived.
#[derive(ToSchema)]
#[schema(example = json!({".older_than": 604_800}))]
pub struct ArchiveOld {
    /// Not changed for so many seconds.
    #[schema(rename = ".older_than", minimum = 0)]
    older_than: f64,
    /// Of this queue, by name or id; of all queues if none is given.
    queue: Option<String>,
    /// Why, for the record.
    reason: Option<String>,
}
