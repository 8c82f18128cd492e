//! What bulk jobs look like. These types are never made: they only describe.

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// One thing to be done to many tasks. A form may have the keys of `filter` among its own.
#[derive(ToSchema)]
#[schema(example = json!({"action": "cancel", "filter": {"queue": "mail"}, "reason": "sent twice"}))]
pub struct NewBulk {
    /// What is done.
    action: BulkAction,
    /// To which tasks. It must have `queue` or `ids`.
    filter: Option<BulkFilter>,
    /// Why, for the record.
    reason: Option<String>,
    /// Only count the tasks.
    #[schema(rename = ".preview")]
    preview: Option<bool>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum BulkAction {
    Cancel,
    Retry,
    Archive,
    Delete,
}

/// Which tasks: all that is given must be so.
#[derive(ToSchema)]
#[schema(example = json!({"queue": "mail", "status": [2], "older_than": 86400}))]
pub struct BulkFilter {
    /// A queue's name or id, or `*` for all queues.
    queue: Option<String>,
    /// A status, or several. Without it: any that the action applies to, save that a retry leaves out tasks that
    /// succeeded (1).
    #[schema(value_type = Option<Vec<i32>>)]
    status: Option<Value>,
    /// Not changed for so many seconds.
    #[schema(minimum = 0)]
    older_than: Option<f64>,
    /// Ids of tasks, at most 100,000.
    ids: Option<Vec<String>>,
    /// The name of the node that they were given to.
    node: Option<String>,
    /// The name or id of the schedule that made them.
    schedule: Option<String>,
    /// Their group.
    group: Option<String>,
    /// Their tenant.
    tenant: Option<String>,
    /// Whether a delete is for archived tasks too, which it is unless this is false. Other actions leave them alone.
    archive: Option<bool>,
}

/// The new job, or with `.preview` the number of tasks.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d8014444"}))]
pub struct NewBulkAnswer {
    /// The job's id.
    id: Option<String>,
    /// How many tasks match; null if counting takes too long.
    count: Option<u64>,
}

/// A bulk job.
#[derive(ToSchema)]
#[schema(example = json!({
    "id": "6b0003bb686c8275d8014444", "action": "cancel", "filter": {"queue": "6b0003bb686c8275d70dc2f1"},
    "reason": null, "by": "the REST API from 127.0.0.1", "state": "running", "total": 5000, "done": 1200,
    "skipped": 0, "errors": [], "position": "6b0003bb686c8275d8013333", "created": "2026-11-20T08:24:27",
    "updated": "2026-11-20T08:24:29", "instance": "6b0003bb686c8275d8015555",
}))]
pub struct BulkJob {
    id: String,
    action: BulkAction,
    /// As it was asked for, with the queue's id.
    #[schema(value_type = Object)]
    filter: Value,
    reason: Option<String>,
    /// Who wanted it.
    by: String,
    /// `running`, `done`, `cancelled` or `failed`.
    state: String,
    /// How many tasks matched when it was made; null if counting them took too long.
    total: Option<u64>,
    /// How many tasks it has changed.
    done: u64,
    /// How many needed nothing any more, or could not be acted on.
    skipped: u64,
    /// The first ten tasks that could not be acted on.
    #[schema(value_type = Vec<Object>)]
    errors: Vec<Value>,
    /// Why it failed; only if it did.
    failure: Option<String>,
    /// The last task that was looked at.
    position: Option<String>,
    /// UTC.
    created: String,
    /// When it last got on, UTC.
    updated: String,
    /// Which server works on it.
    instance: String,
}

/// How many are answered.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BulkLimit {
    /// At most so many, the latest first.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}
