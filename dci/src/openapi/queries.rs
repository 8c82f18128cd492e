//! How tasks are found, chosen and awaited, how arrays, locks, graphs, groups and bulk jobs are asked for, and how rules of admission are
//! named. These types are never made: they only describe.

use std::collections::BTreeMap;

use disbatch_wire::admission::AdmissionKind;
use serde_json::{Map, Value};
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

/// Which tasks. All that is given must be so.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TaskFind {
    /// Of this queue, by name or id; without it, of all queues that the client may see.
    #[param(example = "mail")]
    queue: Option<String>,
    /// In any of these statuses, by word or number, with commas between them.
    #[param(example = "failed,orphaned")]
    status: Option<String>,
    /// On this node.
    node: Option<String>,
    /// With all of these tags, with commas between them.
    #[param(example = "customer=7")]
    tags: Option<String>,
    /// With one of these tags.
    any_tags: Option<String>,
    /// Made at this time or later, as their ids say: ISO 8601, UTC unless it has a zone, seconds since 1970, or an age (`2h`, `7d`).
    #[param(example = "7d")]
    created_since: Option<String>,
    /// Made before this time.
    created_until: Option<String>,
    /// Changed last at this time or later: ISO 8601, UTC unless it has a zone, or seconds since 1970.
    #[param(example = "2026-11-20T08:24:27Z")]
    since: Option<String>,
    /// Changed last at this time or before.
    until: Option<String>,
    /// Changed last within so many seconds; in place of `since`.
    newer_than: Option<f64>,
    /// Changed last so many seconds ago or before; in place of `until`.
    older_than: Option<f64>,
    /// With this text in their params, upper or lower case.
    text: Option<String>,
    /// At most so many: 100 unless given.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// Only those that are older than this task: `next` of the answer before.
    #[param(rename = ".after", pattern = "^[0-9a-f]{24}$")]
    after: Option<String>,
}

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

/// How much of a graph is wanted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GraphExtent {
    /// How far it reaches in both directions; 3 by default.
    #[param(rename = ".depth", minimum = 1, maximum = 20)]
    depth: Option<u32>,
    /// How many tasks it has at most; 100 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// Which locks.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LockSearch {
    /// Only those whose names begin so. Without it, those of arrays are left out.
    #[param(rename = ".prefix")]
    prefix: Option<String>,
    /// Only those behind this name: for the next page.
    #[param(rename = ".after")]
    after: Option<String>,
    /// At most so many; 100 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Which groups.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GroupSearch {
    /// Only those whose names come after this one: the next page.
    #[param(rename = ".after")]
    after: Option<String>,
    /// Only those whose names begin so.
    #[param(rename = ".prefix", example = "acme/")]
    prefix: Option<String>,
    /// Only those that have tasks waiting. On unless empty or 0.
    #[param(rename = ".waiting")]
    waiting: Option<String>,
    /// At most so many: 100 unless given.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}

/// How many are answered.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BulkLimit {
    /// At most so many, the latest first.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}

/// Which arrays.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ArraySearch {
    /// Of the queue with this name or id.
    queue: Option<String>,
    /// `open` or `done`.
    state: Option<String>,
    /// Only those that are older than the one with this id: for the next page.
    #[param(rename = ".before")]
    before: Option<String>,
    /// At most so many; 50 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Which elements are told.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ElementRange {
    /// From this place on, counted from 0.
    #[param(rename = ".from", minimum = 0)]
    from: Option<u32>,
    /// At most so many; 100 by default.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<u32>,
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
