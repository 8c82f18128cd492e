//! What arrays look like. These types are never made: they only describe.

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

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

/// An array.
#[derive(ToSchema)]
#[schema(example = json!({
    "id": "6b0003bb686c8275d8000000", "queue": "6b0003bb686c8275d70dc2f1", "items": "0-99", "count": 100,
    "inserted": 100, "cap": 5, "key": "item", "state": "open", "created": "2026-11-20T08:24:27", "ended": null,
    "succeeded": null, "owner": null, "tenant": null, "done": 40, "final": null,
    "counts": [{"status": -4, "word": "blocked", "tasks": 55}, {"status": 0, "word": "running", "tasks": 5},
        {"status": 1, "word": "succeeded", "tasks": 40}],
}))]
pub struct Array {
    id: String,
    /// The id of the queue of its tasks.
    queue: String,
    /// What its elements are for, in words.
    items: String,
    /// How many elements it has.
    count: u32,
    /// How many of them exist already.
    inserted: u32,
    /// How many may run at once; null for no limit of its own.
    cap: Option<u32>,
    /// The parameter that says which element it is.
    key: String,
    /// `open`; `done` when all elements have ended.
    state: String,
    created: Option<String>,
    ended: Option<String>,
    /// Whether all elements had succeeded when it was done.
    succeeded: Option<bool>,
    owner: Option<String>,
    tenant: Option<String>,
    /// How many elements have ended; null if counting takes too long.
    done: Option<u32>,
    /// How many elements are in which status; null if counting takes too long.
    counts: Option<Vec<ArrayCount>>,
    /// The task that comes after all elements.
    r#final: Option<ArrayFinal>,
    /// Some of the elements, where one array is asked for.
    elements: Option<Vec<ArrayElement>>,
}

/// How many elements are in a status.
#[derive(ToSchema)]
pub struct ArrayCount {
    status: i64,
    /// The status in a word.
    word: String,
    tasks: u32,
}

/// The task that comes after all elements.
#[derive(ToSchema)]
pub struct ArrayFinal {
    id: String,
    /// `succeeded` or `finished`.
    when: String,
    /// Its status, where one array is asked for; null if there is no such task.
    status: Option<i64>,
}

/// An element.
#[derive(ToSchema)]
pub struct ArrayElement {
    /// The id of its task.
    id: String,
    /// Its place, counted from 0.
    index: u32,
    /// What it is for.
    value: Option<Value>,
    /// Its status; null if there is no such task, not yet or not any more.
    status: Option<i64>,
}

/// The bulk job that does it.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d8014444"}))]
pub struct ArrayJob {
    /// Its progress is at `GET /bulk/{id}`.
    id: String,
    /// Of a rerun: how many elements wait or run, and are left alone; null if counting them takes too long.
    left: Option<u64>,
}
