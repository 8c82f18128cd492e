//! What request bodies look like. These types are never made: they only describe.

use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A new queue.
#[derive(ToSchema)]
#[schema(example = json!({"name": "mail", "plugin": "Disbatch::Plugin::Demo"}))]
pub struct NewQueue {
    /// A name that no other queue has.
    #[schema(min_length = 1)]
    name: String,
    /// One of `GET /plugins`.
    #[schema(min_length = 1)]
    plugin: String,
}

/// What to change of a queue. At least one key.
#[derive(ToSchema)]
#[schema(example = json!({"threads": 4}))]
pub struct QueueChange {
    /// A name that no other queue has.
    #[schema(min_length = 1)]
    name: Option<String>,
    /// One of `GET /plugins`.
    plugin: Option<String>,
    /// How many of its tasks may run at once over all nodes.
    threads: Option<u32>,
}

/// What to change of a node.
#[derive(ToSchema)]
#[schema(example = json!({"maxthreads": 8}))]
pub struct NodeChange {
    /// How many tasks may run on it at once; null for no limit.
    #[schema(required)]
    maxthreads: Option<u32>,
}

/// New tasks. With `collection` and `filter`, `params` is the pattern for one task per document found: a value
/// `document.KEY` takes the document's value of KEY.
#[derive(ToSchema)]
#[schema(example = json!({"queue": "mail", "params": [{"to": "you"}, {"to": "me"}]}))]
pub struct NewTasks {
    /// The queue's name or id.
    queue: String,
    /// One object, or an array with one object for each task. Keys have no dot.
    params: OneOrMany,
    /// The collection that has one document for each task.
    collection: Option<String>,
    /// Which of its documents; only operators that compare.
    #[schema(value_type = Option<Object>)]
    filter: Option<Map<String, Value>>,
}

/// One object, or several.
#[derive(serde::Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(Map<String, Value>),
    /// Several.
    Many(Vec<Map<String, Value>>),
}
