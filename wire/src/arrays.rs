//! Arrays: many tasks that were submitted as one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::liberal::{Set, Text};
use crate::options;

/// Which arrays.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ArraySearch {
    /// Of the queue with this name or id.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub queue: Option<Value>,
    /// `open` or `done`.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub state: Option<Value>,
    /// Only those that are older than the one with this id: for the next page.
    #[serde(rename = ".before", default, deserialize_with = "options::text")]
    pub before: Option<String>,
    /// At most so many; 50 by default.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<i64>,
}

/// Which elements are told.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ElementRange {
    /// From this place on, counted from 0.
    #[serde(rename = ".from", default, deserialize_with = "options::integer")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 0))]
    pub from: Option<i64>,
    /// At most so many; 100 by default.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    pub limit: Option<u32>,
}

/// Which elements of an array run again.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"elements": "all", "downstream": "all", "reason": "the input is right now"})))]
pub struct RerunArray {
    /// `failed` (the default): those that ended without success; `all`: all that have ended.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub elements: Set<Value>,
    /// Which of the tasks that come after them run again, too: `none` (the default), `failed` (those that ended without success) or `all`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub downstream: Set<Value>,
    /// Parameters in place of those that the elements have, but for what each is for.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub params: Set<Value>,
    /// Why, for the history.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Set<Text>,
}

/// An array.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8000000", "queue": "6b0003bb686c8275d70dc2f1", "items": "0-99", "count": 100,
    "inserted": 100, "cap": 5, "key": "item", "state": "open", "created": "2026-11-20T08:24:27", "ended": null,
    "succeeded": null, "owner": null, "tenant": null, "done": 40, "final": null,
    "counts": [{"status": -4, "word": "blocked", "tasks": 55}, {"status": 0, "word": "running", "tasks": 5},
        {"status": 1, "word": "succeeded", "tasks": 40}],
})))]
pub struct Array {
    pub id: String,
    /// The id of the queue of its tasks.
    pub queue: String,
    /// What its elements are for, in words.
    pub items: String,
    /// How many elements it has.
    pub count: u32,
    /// How many of them exist already.
    pub inserted: u32,
    /// How many may run at once; null for no limit of its own.
    pub cap: Option<u32>,
    /// The parameter that says which element it is.
    pub key: String,
    /// `open`; `done` when all elements have ended.
    pub state: String,
    pub created: Option<String>,
    pub ended: Option<String>,
    /// Whether all elements had succeeded when it was done.
    pub succeeded: Option<bool>,
    pub owner: Option<String>,
    pub tenant: Option<String>,
    /// How many elements have ended; null if counting takes too long.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub done: Option<i64>,
    /// How many elements are in which status; null if counting takes too long.
    pub counts: Option<Vec<ArrayCount>>,
    /// The task that comes after all elements.
    pub r#final: Option<ArrayFinal>,
    /// Some of the elements, where one array is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<Vec<ArrayElement>>,
}

/// How many elements are in a status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArrayCount {
    pub status: i64,
    /// The status in a word.
    pub word: String,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub tasks: i64,
}

/// The task that comes after all elements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArrayFinal {
    pub id: String,
    /// `succeeded` or `finished`.
    pub when: String,
    /// Its status, where one array is asked for; null if there is no such task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub status: Option<Option<i64>>,
}

/// An element.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArrayElement {
    /// The id of its task.
    pub id: String,
    /// Its place, counted from 0.
    pub index: u32,
    /// What it is for.
    pub value: Option<Value>,
    /// Its status; null if there is no such task, not yet or not any more.
    pub status: Option<i64>,
}

/// The bulk job that does it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"id": "6b0003bb686c8275d8014444"})))]
pub struct ArrayJob {
    /// Its progress is at `GET /bulk/{id}`.
    pub id: String,
    /// Of a rerun: how many elements wait or run, and are left alone; null if counting them takes too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub left: Option<Option<i64>>,
}
