//! Batches: tasks that are submitted to several queues at once.

use serde::Deserialize;
use serde_json::{Map, Value};

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
