//! What is done with tasks, what they are answered, and what came of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::liberal::{Set, Text, given};

/// Why something is done.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"reason": "wrong address"})))]
pub struct Reason {
    /// For the task's history.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, max_length = 200))]
    pub reason: Set<Text>,
}

/// Another priority of a task.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"priority": 10})))]
pub struct NewPriority {
    /// Those with a higher one come first, in queues that go by priority or are fair.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = i64, required = true, minimum = -1000, maximum = 1000))]
    pub priority: Option<Value>,
    /// Why, for the record.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Set<Text>,
}

/// What runs again.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"downstream": "failed", "reason": "the address is right now"})))]
pub struct Rerun {
    /// Which of the tasks that come after it run again, too: `none` (the default), `failed` (those that ended without success) or `all`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub downstream: Set<Value>,
    /// Parameters in place of those that the task has.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub params: Set<Value>,
    /// Why, for the history.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Set<Text>,
}

/// What came of a cancellation.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "status": -5, "outcome": "cancelled",
})))]
pub struct CancelResult {
    pub id: String,
    /// -5 if it will not run, 0 if its runner has been asked to end it, -3 if a web service worked on it.
    pub status: i64,
    /// `cancelled`, `requested` or `terminated`.
    pub outcome: String,
}

/// What came of a retry.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "status": -2, "attempt": 2,
})))]
pub struct RetryResult {
    pub id: String,
    /// -2, queued; or -4 if it waits for its locks, or again for tasks that it comes after.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub status: Option<i64>,
    /// Which attempt its next run will be.
    pub attempt: i64,
    /// The archived task that `id` is a new one of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
}

/// What came of a rerun.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "status": -2, "attempt": 2, "downstream": ["6b0003bb686c8275d8013334"],
})))]
pub struct RerunResult {
    pub id: String,
    /// -2, queued; or -4 if it waits for its locks, or again for tasks that it comes after. That which it has, if it had not ended.
    pub status: i64,
    /// Which attempt its next run will be, if it had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Those that come after it and wait again.
    pub downstream: Vec<String>,
}

/// What came of another priority.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"id": "6b0003bb686c8275d8013333", "priority": 10})))]
pub struct PriorityResult {
    pub id: String,
    pub priority: i64,
}

/// What came of archiving a task.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"id": "6b0003bb686c8275d8013333", "outcome": "archived"})))]
pub struct ArchiveResult {
    pub id: String,
    /// `archived`, or `archived before`.
    pub outcome: &'static str,
}

/// Submissions, each as `POST /tasks` takes it, but for tasks of a collection and arrays.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"tasks": [
    {"queue": "disks", "params": {"node": "node1"}},
    {"queue": "instances", "params": {"name": "web1"}, ".after": [-1]},
]})))]
pub struct NewBatch {
    /// At most 1,000 of them.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 1000))]
    pub tasks: Vec<Map<String, Value>>,
}

/// What became of each submission, in their order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"results": [
    {"id": "6b0003bb686c8275d8013333"}, {"error": "queue not found", "status": 400},
], "submitted": 1, "refused": 1})))]
pub struct BatchAnswer {
    pub results: Vec<BatchResult>,
    /// How many entries were submitted.
    pub submitted: u64,
    pub refused: u64,
}

/// `id`, or `ids` if the entry had several params; or `error` and the `status` that `POST /tasks` would have answered with.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResult {
    pub id: Option<String>,
    pub ids: Option<Vec<String>>,
    pub error: Option<String>,
    pub status: Option<u16>,
}

/// The answer to what a task has asked. A form has a field for each of the question's form in place of `value`, named by its JSON Pointer.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"value": {"go": true}})))]
pub struct NewAnswer {
    /// It has to fit the question's form.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, required = true))]
    pub value: Option<Value>,
}

/// What came of an answer.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"id": "6b0003bb686c8275d8013333", "status": -2})))]
pub struct AnswerResult {
    /// The task's id.
    pub id: String,
    /// -2, queued; or -4 if it waits for its locks.
    pub status: i64,
}

/// A link by which one question can be answered without a login.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "path": "/answers/6b0003bb686c8275d8013333-0a..",
    "until": "2026-11-27T08:24:27",
})))]
pub struct AnswerLink {
    /// The task's id.
    pub id: String,
    /// Where the question is, on this server. Whoever has it can answer: it is shown once.
    pub path: String,
    /// Until when it holds, UTC, unless the question is answered before.
    pub until: String,
}

/// What was done.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "outcome": "logged",
})))]
pub struct CallbackDone {
    /// The task's id.
    pub id: String,
    /// `logged`, `stored` or `ended`.
    pub outcome: String,
}
