//! What rules of admission look like, and chosen fields of tasks. These types are never made: they only describe.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

/// A rule about new tasks. For `queue`, `tenant` and `owner` it needs a value.
#[derive(ToSchema)]
#[schema(example = json!({"scope": "queue", "value": "mail", "action": "reject", "reason": "upgrade"}))]
pub struct AdmissionChange {
    /// Which tasks.
    scope: AdmissionKind,
    /// A queue's name or id, a tenant, or a user's login name.
    #[schema(max_length = 200)]
    value: Option<String>,
    /// What becomes of them.
    action: AdmissionAction,
    /// Why, for those who are refused and for the record.
    #[schema(max_length = 200)]
    reason: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum AdmissionKind {
    All,
    Queue,
    Tenant,
    Owner,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum AdmissionAction {
    Accept,
    Pause,
    Reject,
}

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

/// All rules that one may see.
#[derive(ToSchema)]
pub struct Admission {
    rules: Vec<AdmissionRule>,
}

/// A rule, and what it has come to. Above 10,000 tasks, 10,001 is told; null if counting takes too long, or if tasks are taken.
#[derive(ToSchema)]
#[schema(example = json!({
    "scope": "queue", "value": "6b0003bb686c8275d70dc2f1", "name": "mail", "action": "reject", "reason": "upgrade",
    "by": "anna from 192.0.2.7", "at": "2026-11-20T08:24:27", "waiting": 0, "held": 0, "running": 0, "safe": true,
    "text": "empty: safe to upgrade",
}))]
pub struct AdmissionRule {
    scope: AdmissionKind,
    /// The id of a queue, or a name.
    value: Option<String>,
    /// The queue's name, if it is still there.
    name: Option<String>,
    action: Option<AdmissionAction>,
    reason: Option<String>,
    /// Who made it.
    by: Option<String>,
    /// When, UTC.
    at: Option<String>,
    /// Tasks that wait.
    waiting: Option<u64>,
    /// Those of them that a rule holds.
    held: Option<u64>,
    /// Those that wait in queues that start nothing, as they are paused or have no threads, and are not held.
    stopped: Option<u64>,
    /// Tasks that are claimed or run.
    running: Option<u64>,
    /// Some of the tasks that are still to come to their end, those that run first: `task`, `queue`, `status` and `node`.
    #[schema(value_type = Option<Vec<Object>>)]
    left: Option<Vec<Value>>,
    /// The oldest tasks that are claimed or running on nodes that are not alive: `task` and `node`. Without a lease, as Perl's, nobody
    /// ends them.
    #[schema(value_type = Option<Vec<Object>>)]
    stranded: Option<Vec<Value>>,
    /// Whether nothing runs, nothing waits but what is held or in queues that start nothing, and nothing more can come.
    safe: Option<bool>,
    /// The same in words.
    text: Option<String>,
}

/// What came of lifting a rule.
#[derive(ToSchema)]
#[schema(example = json!({"lifted": true, "released": 12}))]
pub struct AdmissionLifted {
    lifted: bool,
    /// How many held tasks go on.
    released: u64,
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
