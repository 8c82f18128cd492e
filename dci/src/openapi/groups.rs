//! What groups look like. These types are never made: they only describe.

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Which groups.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GroupSearch {
    /// Only those whose names come after this one: the next page.
    #[param(rename = ".after")]
    after: Option<String>,
    /// Only those whose names begin so.
    #[param(rename = ".prefix", example = "acme/")]
    prefix: Option<String>,
    /// Only those that have tasks waiting. On unless empty or 0.
    #[param(rename = ".waiting")]
    waiting: Option<String>,
    /// At most so many: 100 unless given.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}

/// Groups of a queue.
#[derive(ToSchema)]
#[schema(example = json!({
    "groups": [{
        "group": "acme/ann", "waiting": 17, "more_waiting": false, "running": 2, "started": 240, "finished": 238,
        "used": 312.5, "weight": 1, "started_ago": 4.2, "turn_in": 3, "why": "3 turns come before its next one",
    }],
    "next": null, "waiting": 5, "more_waiting": false, "round": 128, "last": "zoe", "policy": "fair", "share": "turns",
    "scheme": [2, 1], "group_threads": null, "half_life": 3600, "weights": null,
}))]
pub struct QueueGroups {
    /// In the order of their names.
    groups: Vec<QueueGroup>,
    /// With which `.after` the next page begins; null if this is the last.
    next: Option<String>,
    /// How many groups wait; up to 10,000 are counted.
    waiting: u64,
    /// Whether even more wait.
    more_waiting: bool,
    /// How often the turns have begun anew with the first group.
    round: i64,
    /// The group that had its turn last.
    last: Option<String>,
    /// `fifo`, `lifo`, `priority` or `fair`.
    policy: String,
    /// What is shared: `turns` or `use`.
    share: String,
    /// How often each class of priorities is preferred.
    scheme: Option<Vec<u32>>,
    /// How many tasks of a group may run at once.
    group_threads: Option<u64>,
    /// After how many seconds what was used counts half.
    half_life: f64,
    /// What groups get more than others, by their names.
    #[schema(value_type = Option<Object>)]
    weights: Option<Value>,
}

/// A group.
#[derive(ToSchema)]
pub struct QueueGroup {
    /// Its name; empty for the tasks that have none.
    group: String,
    /// How many of its tasks wait; up to 1,000 are counted.
    waiting: u64,
    /// Whether even more wait.
    more_waiting: bool,
    /// How many are claimed or running.
    running: u64,
    /// How many were started in all, as far as nodes have told.
    started: u64,
    /// How many of these have ended.
    finished: u64,
    /// For how many seconds its tasks ran; what is older counts less.
    used: f64,
    /// How much more than others it gets.
    weight: u32,
    /// How many seconds ago one of its tasks was started.
    started_ago: Option<f64>,
    /// How many turns of others come before its next one; null if it does not wait, or that cannot be told.
    turn_in: Option<u64>,
    /// When its next turn is, or why it has none.
    why: String,
}
