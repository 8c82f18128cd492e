//! What locks and graphs of tasks look like. These types are never made: they only describe.

use utoipa::{IntoParams, ToSchema};

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

/// Tasks, and which come after which.
#[derive(ToSchema)]
#[schema(example = json!({
    "nodes": [
        {"key": 0, "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "status": 1,
            "word": "succeeded", "distance": -1},
        {"key": 1, "id": "6b0003bb686c8275d8013334", "queue": "6b0003bb686c8275d70dc2f1", "status": -2,
            "word": "queued", "distance": 0},
    ],
    "edges": [{"from": 0, "to": 1, "waiting": false}], "more": false,
}))]
pub struct TaskGraph {
    nodes: Vec<GraphNode>,
    edges: Vec<GraphEdge>,
    /// Whether there are more tasks than these.
    more: bool,
}

/// A task of a graph.
#[derive(ToSchema)]
pub struct GraphNode {
    /// Its number, by which edges name it.
    key: u32,
    /// Missing if it is hidden.
    id: Option<String>,
    queue: Option<String>,
    /// Its status; null if there is no such task any more.
    status: Option<i64>,
    /// The status in a word.
    word: String,
    /// -1 if the task that was asked for comes after it, 1 if it comes after that, and so on.
    distance: i32,
    /// Whether it is a task of a queue that the client may not see.
    hidden: Option<bool>,
}

/// One task comes after another.
#[derive(ToSchema)]
pub struct GraphEdge {
    /// The earlier one.
    from: u32,
    /// The later one.
    to: u32,
    /// Whether it still waits for it.
    waiting: bool,
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

/// A lock.
#[derive(ToSchema)]
#[schema(example = json!({
    "name": "db", "held_by": 1, "waiting": 3, "holders": [{
        "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "mode": "exclusive", "status": 0,
        "word": "running", "node": "worker1", "since": "2026-11-20T08:24:27",
    }],
}))]
pub struct Lock {
    name: String,
    /// How many tasks hold it.
    held_by: u64,
    /// How many tasks wait for it; 1,000 stands for that and more.
    waiting: u64,
    /// The first 20 of those who hold it.
    holders: Vec<LockTask>,
}

/// A lock, and who waits for it.
#[derive(ToSchema)]
pub struct LockDetails {
    name: String,
    /// How many tasks hold it.
    held_by: u64,
    /// How many tasks wait for it; 1,000 stands for that and more.
    waiting: u64,
    /// The first 20 of those who hold it.
    holders: Vec<LockTask>,
    /// The first 100 of those who wait for it, in the order in which they get it.
    waiters: Vec<LockTask>,
}

/// A task that holds a lock, or waits for it.
#[derive(ToSchema)]
pub struct LockTask {
    /// Missing if it is hidden.
    id: Option<String>,
    queue: Option<String>,
    /// `exclusive`, `shared` or `places`.
    mode: String,
    /// Of how many places it is one.
    places: Option<u32>,
    /// Its status; null if there is no such task any more.
    status: Option<i64>,
    /// The status in a word.
    word: String,
    /// The node that has it.
    node: Option<String>,
    /// Since when it holds the lock.
    since: Option<String>,
    /// Whether it is a task of a queue that the client may not see.
    hidden: Option<bool>,
}
