//! Locks, and graphs of tasks.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::options;

/// Which locks.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct LockSearch {
    /// Only those whose names begin so. Without it, those of arrays are left out.
    #[serde(rename = ".prefix", default, deserialize_with = "options::text")]
    pub prefix: Option<String>,
    /// Only those behind this name: for the next page.
    #[serde(rename = ".after", default, deserialize_with = "options::text")]
    pub after: Option<String>,
    /// At most so many; 100 by default.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<i64>,
}

/// How much of a graph is wanted.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct GraphExtent {
    /// How far it reaches in both directions; 3 by default.
    #[serde(rename = ".depth", default, deserialize_with = "options::up_to::<_, _, 20>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 20))]
    pub depth: Option<i32>,
    /// How many tasks it has at most; 100 by default.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 500>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<u32>, minimum = 1, maximum = 500))]
    pub limit: Option<usize>,
}

/// A lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "name": "db", "held_by": 1, "waiting": 3, "holders": [{
        "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "mode": "exclusive", "status": 0,
        "word": "running", "node": "worker1", "since": "2026-11-20T08:24:27",
    }],
})))]
pub struct Lock {
    pub name: String,
    /// How many tasks hold it.
    pub held_by: u64,
    /// How many tasks wait for it; 1,000 stands for that and more.
    pub waiting: u64,
    /// The first 20 of those who hold it.
    pub holders: Vec<LockTask>,
}

/// A lock, and who waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockDetails {
    pub name: String,
    /// How many tasks hold it.
    pub held_by: u64,
    /// How many tasks wait for it; 1,000 stands for that and more.
    pub waiting: u64,
    /// The first 20 of those who hold it.
    pub holders: Vec<LockTask>,
    /// The first 100 of those who wait for it, in the order in which they get it.
    pub waiters: Vec<LockTask>,
}

/// A task that holds a lock, or waits for it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockTask {
    /// Missing if it is hidden.
    pub id: Option<String>,
    pub queue: Option<String>,
    /// `exclusive`, `shared` or `places`.
    pub mode: String,
    /// Of how many places it is one.
    pub places: Option<u32>,
    /// Its status; null if there is no such task any more.
    #[serialize_always]
    pub status: Option<i64>,
    /// The status in a word.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub word: String,
    /// The node that has it.
    pub node: Option<String>,
    /// Since when it holds the lock.
    pub since: Option<String>,
    /// Whether it is a task of a queue that the client may not see.
    pub hidden: Option<bool>,
}

/// Tasks, and which come after which.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "nodes": [
        {"key": 0, "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "status": 1,
            "word": "succeeded", "distance": -1},
        {"key": 1, "id": "6b0003bb686c8275d8013334", "queue": "6b0003bb686c8275d70dc2f1", "status": -2,
            "word": "queued", "distance": 0},
    ],
    "edges": [{"from": 0, "to": 1, "waiting": false}], "more": false,
})))]
pub struct TaskGraph {
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<GraphEdge>,
    /// Whether there are more tasks than these.
    pub more: bool,
}

/// A task of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphNode {
    /// Its number, by which edges name it.
    pub key: u32,
    /// Missing if it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub queue: Option<Option<String>>,
    /// Its status; null if there is no such task any more.
    pub status: Option<i64>,
    /// The status in a word.
    pub word: String,
    /// -1 if the task that was asked for comes after it, 1 if it comes after that, and so on.
    pub distance: i32,
    /// Whether it is a task of a queue that the client may not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
}

/// One task comes after another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphEdge {
    /// The earlier one.
    pub from: u32,
    /// The later one.
    pub to: u32,
    /// Whether it still waits for it.
    pub waiting: bool,
}
