//! What requests on the routes of the web extensions look like. These types only describe.

use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{OfRead, Queue};

type Object = Map<String, Value>;

/// A search over all fields.
#[derive(ToSchema)]
#[schema(example = json!({"filter": {"params.to": "you"}, "options": {"limit": 10, "sort": {"_id": -1}}}))]
pub struct Search {
    /// What to look for; only operators that compare.
    filter: Option<Object>,
    /// `limit` (at most 100), `skip` and `sort`.
    options: Option<Object>,
    /// Only how many match.
    count: Option<Value>,
    /// Over many lines.
    pretty: Option<Value>,
    /// Leaves output out; on unless given.
    terse: Option<Value>,
    /// Archived tasks too.
    #[schema(rename = ".archive")]
    archive: Option<Value>,
}

/// One object for each task.
#[derive(ToSchema)]
#[schema(example = json!([{"to": "you"}, {"to": "me"}]))]
pub struct TaskParams(Vec<Object>);

/// One task for each document of a collection.
#[derive(ToSchema)]
#[schema(example = json!({"filter": {"active": true}, "params": {"to": "document.address"}}))]
pub struct FromCollection {
    /// Which documents; only operators that compare.
    filter: Object,
    /// The pattern: `document.KEY` stands for the document's value of KEY.
    params: Object,
}

/// A queue's attribute.
#[derive(ToSchema)]
#[schema(example = json!({"queueid": "6b0003bb686c8275d70dc2f1", "attr": "threads", "value": 2}))]
pub struct QueueAttribute {
    /// The queue's id.
    queueid: String,
    /// `threads`
    attr: String,
    value: u32,
}

/// A new queue.
#[derive(ToSchema)]
#[schema(example = json!({"type": "Disbatch::Plugin::Demo", "name": "mail"}))]
pub struct StartQueue {
    /// Its plugin.
    #[schema(rename = "type")]
    plugin: String,
    name: String,
}

/// The queue to delete.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d70dc2f1"}))]
pub struct DeleteQueue {
    id: String,
}

/// New tasks. Both values may be text.
#[derive(ToSchema)]
#[schema(example = json!({"queueid": "mail", "object": "[{\"to\":\"you\"}]"}))]
pub struct CreateTasks {
    /// The queue's name or id.
    queueid: String,
    /// An array with one object for each task, or its JSON as text.
    object: Value,
}

/// New tasks from a collection.
#[derive(ToSchema)]
#[schema(example = json!({
    "queueid": "mail", "collection": "people", "jsonfilter": "{\"active\":true}",
    "params": "{\"to\":\"document.address\"}",
}))]
pub struct CreateTasksFromQuery {
    /// The queue's name or id.
    queueid: String,
    collection: String,
    /// Which documents: an object, or its JSON as text.
    jsonfilter: Value,
    /// The pattern: an object, or its JSON as text.
    params: Value,
}

/// A search within one queue or all.
#[derive(ToSchema)]
#[schema(example = json!({"queue": "6b0003bb686c8275d70dc2f1", "filter": "{\"status\":1}", "limit": 10}))]
pub struct SearchTasks {
    /// The queue's id.
    queue: Option<String>,
    /// An object, or its JSON as text.
    filter: Option<Value>,
    limit: Option<u32>,
    skip: Option<u32>,
    /// Answers only how many match, as `[1, count]`.
    count: Option<Value>,
    /// Leaves output out.
    terse: Option<Value>,
}

/// `QueueBalance`'s settings.
#[derive(ToSchema)]
#[schema(example = json!({"max_tasks": {"* 07:00": 10, "0 00:00": 50}, "queues": [["low"], ["high"]]}))]
pub struct BalanceChange {
    /// From when in the week how many tasks may run: `<0-6 or *> HH:MM`, with 0 for Sundays.
    max_tasks: Object,
    /// Names of queues, in tiers: the second goes first, then the next ones, and the first gets what these leave.
    queues: Vec<Vec<String>>,
    /// Pauses until then, in seconds since 1970.
    disabled: Option<u64>,
}

/// All queues with their tasks counted, in the order of the database.
#[utoipa::path(
    get, path = "/scheduler-json", tag = "Disbatch::Web::V3", operation_id = "schedulerJson",
    responses((status = 200, description = "All queues, as from `GET /queues`.", body = Vec<Queue>), OfRead),
)]
fn scheduler() {}
