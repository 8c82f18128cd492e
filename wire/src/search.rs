//! How tasks are found, chosen and awaited, and what is told of them then.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::options;

/// Which tasks. All that is given must be so.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct TaskFind {
    /// Of this queue, by name or id; without it, of all queues that the client may see.
    #[serde(default, deserialize_with = "options::text")]
    #[cfg_attr(feature = "openapi", param(example = "mail"))]
    pub queue: Option<String>,
    /// In any of these statuses, by word or number, with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "failed,orphaned"))]
    pub status: Option<Value>,
    /// On this node.
    #[serde(default, deserialize_with = "options::text")]
    pub node: Option<String>,
    /// With all of these tags, with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "customer=7"))]
    pub tags: Option<Value>,
    /// With one of these tags.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub any_tags: Option<Value>,
    /// Made at this time or later, as their ids say: ISO 8601, UTC unless it has a zone, seconds since 1970, or an age (`2h`, `7d`).
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "7d"))]
    pub created_since: Option<Value>,
    /// Made before this time.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub created_until: Option<Value>,
    /// Changed last at this time or later: ISO 8601, UTC unless it has a zone, or seconds since 1970.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "2026-11-20T08:24:27Z"))]
    pub since: Option<Value>,
    /// Changed last at this time or before.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub until: Option<Value>,
    /// Changed last within so many seconds; in place of `since`.
    #[cfg_attr(feature = "openapi", param(value_type = Option<f64>))]
    pub newer_than: Option<Value>,
    /// Changed last so many seconds ago or before; in place of `until`.
    #[cfg_attr(feature = "openapi", param(value_type = Option<f64>))]
    pub older_than: Option<Value>,
    /// With this text in their params, upper or lower case.
    #[serde(default, deserialize_with = "options::text")]
    pub text: Option<String>,
    /// At most so many: 100 unless given.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<i64>, minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
    /// Only those that are older than this task: `next` of the answer before.
    #[serde(rename = ".after")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, pattern = "^[0-9a-f]{24}$"))]
    pub after: Option<Value>,
}

/// Tasks that were found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "tasks": [{
        "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "queue_name": "mail", "status": 2,
        "word": "failed", "node": "worker1", "params": {"to": "ashley"}, "ctime": "2026-11-20T08:24:27",
        "mtime": "2026-11-20T08:24:29", "attempt": 1,
    }],
    "looked_at": 1, "next": null,
})))]
pub struct FoundTasks {
    /// The newest first.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<FoundTask>))]
    pub tasks: Vec<Value>,
    /// How many tasks were looked at.
    pub looked_at: u64,
    /// `.after` of the next search; null if all have been looked at.
    pub next: Option<String>,
}

/// A task. It has other fields, too, as far as they are set: `started`, `run_at`, `deadline`, `attempt`, `failures`, `error`, `exit`,
/// `progress`, `group`, `priority`, `unique`, `schedule`, `array`, `tenant`, `owner` and `tags`.
#[cfg(feature = "openapi")]
#[derive(utoipa::ToSchema)]
pub struct FoundTask {
    pub id: String,
    /// The queue's id.
    pub queue: String,
    /// The queue's name; null if it is gone.
    pub queue_name: Option<String>,
    pub status: Value,
    /// The status in a word; null if it is no number.
    pub word: Option<String>,
    pub node: Option<Value>,
    /// What it was submitted with; a note in place of more than 16 KiB.
    pub params: Option<Value>,
    pub ctime: Option<Value>,
    pub mtime: Option<Value>,
}

/// Which fields of which tasks.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ChosenFields {
    /// Up to 1,000 ids with commas between them.
    #[serde(rename = ".ids")]
    #[cfg_attr(feature = "openapi", param(value_type = String, example = "6b0003bb686c8275d8013333,6b0003bb686c8275d8013334"))]
    pub ids: Option<Value>,
    /// Up to 50 names of fields with commas between them; `status` if none are given.
    #[serde(rename = ".fields")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "status,progress,exit"))]
    pub fields: Option<Value>,
}

/// Chosen fields of a task.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "fields": {"status": 0, "progress": {"percent": 40}},
    "seen": "5feceb66ffc86f38d952786c6d696c79",
})))]
pub struct ChosenTask {
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{24}$"))]
    pub id: String,
    /// Those of the fields that it has.
    pub fields: Map<String, Value>,
    /// Tells these values from others: for `.since` of `GET /tasks/{id}/wait`.
    pub seen: String,
    /// Whether they are not what they were; only where that was waited for.
    pub changed: Option<bool>,
    /// Whether the task is over; only where a change was waited for.
    pub ended: Option<bool>,
    /// How many bytes of `stdout` and `stderr` there are so far; only where a change of these was waited for, while the task runs.
    pub live: Option<BTreeMap<String, u64>>,
}

/// What to wait for.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct WaitOptions {
    /// Seconds, 60 unless given.
    #[serde(rename = ".timeout", default, deserialize_with = "options::integer")]
    #[cfg_attr(feature = "openapi", param(minimum = 0, maximum = 600))]
    pub timeout: Option<i64>,
    /// A status: answers when the task has another one. Without it: when the task has ended. With `.fields`: what `seen` was;
    /// without it the answer comes at once.
    #[serde(rename = ".since")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "-2"))]
    pub since: Option<Value>,
    /// Names of fields with commas between them: answers when one of them has changed.
    #[serde(rename = ".fields")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "status,progress"))]
    pub fields: Option<Value>,
}

/// Where a task stands.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "status": 1, "word": "succeeded",
    "ended": true, "changed": true, "progress": {"percent": 100}, "mtime": "2026-11-20T08:24:29",
})))]
pub struct Waited {
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{24}$"))]
    pub id: String,
    /// The queue's id.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{24}$"))]
    pub queue: String,
    pub status: i64,
    /// The status in a word.
    pub word: String,
    /// Whether the task is over.
    pub ended: bool,
    /// Whether what was waited for has happened.
    pub changed: bool,
    /// What the plugin says: `percent`, `message` and `at`. Null if it has said nothing.
    pub progress: Option<Value>,
    /// When the status last changed, UTC.
    pub mtime: Value,
}

/// Which output, and how.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct OutputOptions {
    /// Goes on until the attempt is over. On unless empty or 0.
    #[serde(rename = ".follow", default, deserialize_with = "options::switch")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub follow: bool,
    /// Of this attempt, counted from 1; the latest one unless given.
    #[serde(rename = ".attempt", default, deserialize_with = "options::integer")]
    #[cfg_attr(feature = "openapi", param(minimum = 0))]
    pub attempt: Option<i64>,
    /// With `.follow`: from this byte on, counted from 0. The header `Disbatch-From` of the answer is the byte that it begins with: a later one
    /// if those before are not kept any more. Where some are missing later, the connection breaks: ask again. Of what has ended it is like a range.
    #[serde(rename = ".from", default, deserialize_with = "options::integer")]
    #[cfg_attr(feature = "openapi", param(minimum = 0))]
    pub from: Option<i64>,
}
