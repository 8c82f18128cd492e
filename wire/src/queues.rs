//! Queues, and what is asked about one: its groups, and how its tasks and their shadows compare.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{Object, options};

/// A queue with its tasks counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d70dc2f1", "name": "mail", "plugin": "Disbatch::Plugin::Demo", "threads": 2,
    "queued": 17, "running": 2, "completed": 5,
})))]
pub struct Queue {
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{24}$"))]
    pub id: String,
    /// As stored: some clients store numbers.
    pub name: Value,
    /// As stored.
    pub plugin: Value,
    /// How many of its tasks may run at once over all nodes; null counts as 0. As stored.
    pub threads: Value,
    /// Tasks with status -2 and below.
    pub queued: u64,
    /// Tasks with status -1 and 0.
    pub running: u64,
    /// Tasks with status 1 and above.
    pub completed: u64,
    /// With `.details` what applies to its tasks, and how its rate and its canary do.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub details: Map<String, Value>,
}

/// Which groups.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct GroupSearch {
    /// Only those whose names come after this one: the next page.
    #[serde(rename = ".after", default, deserialize_with = "name")]
    pub after: Option<String>,
    /// Only those whose names begin so.
    #[serde(rename = ".prefix", default, deserialize_with = "name")]
    #[cfg_attr(feature = "openapi", param(example = "acme/"))]
    pub prefix: Option<String>,
    /// Only those that have tasks waiting. On unless empty or 0.
    #[serde(rename = ".waiting", default, deserialize_with = "options::switch")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub waiting: bool,
    /// At most so many: 100 unless given.
    #[serde(rename = ".limit", default, deserialize_with = "options::integer_up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<i64>, minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}

/// The name of a group, also that of the one without a name.
fn name<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None, // Nothing else is one.
    })
}

/// Groups of a queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "groups": [{
        "group": "acme/ann", "waiting": 17, "more_waiting": false, "running": 2, "started": 240, "finished": 238,
        "used": 312.5, "weight": 1, "started_ago": 4.2, "turn_in": 3, "why": "3 turns come before its next one",
    }],
    "next": null, "waiting": 5, "more_waiting": false, "round": 128, "last": "zoe", "policy": "fair", "share": "turns",
    "scheme": [2, 1], "group_threads": null, "half_life": 3600, "weights": null,
})))]
pub struct QueueGroups {
    /// In the order of their names.
    pub groups: Vec<QueueGroup>,
    /// With which `.after` the next page begins; null if this is the last.
    pub next: Option<String>,
    /// How many groups wait; up to 10,000 are counted.
    pub waiting: u64,
    /// Whether even more wait.
    pub more_waiting: bool,
    /// How often the turns have begun anew with the first group.
    pub round: i64,
    /// The group that had its turn last.
    pub last: Option<String>,
    /// `fifo`, `lifo`, `priority` or `fair`.
    pub policy: String,
    /// What is shared: `turns` or `use`.
    pub share: String,
    /// How often each class of priorities is preferred.
    pub scheme: Option<Vec<u32>>,
    /// How many tasks of a group may run at once.
    pub group_threads: Option<u64>,
    /// After how many seconds what was used counts half.
    pub half_life: f64,
    /// What groups get more than others, by their names.
    pub weights: Option<Object>,
}

/// A group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueGroup {
    /// Its name; empty for the tasks that have none.
    pub group: String,
    /// How many of its tasks wait; up to 1,000 are counted.
    pub waiting: u64,
    /// Whether even more wait.
    pub more_waiting: bool,
    /// How many are claimed or running.
    pub running: u64,
    /// How many were started in all, as far as nodes have told.
    pub started: u64,
    /// How many of these have ended.
    pub finished: u64,
    /// For how many seconds its tasks ran; what is older counts less.
    pub used: f64,
    /// How much more than others it gets.
    pub weight: u32,
    /// How many seconds ago one of its tasks was started.
    pub started_ago: Option<f64>,
    /// How many turns of others come before its next one; null if it does not wait, or that cannot be told.
    pub turn_in: Option<u64>,
    /// When its next turn is, or why it has none.
    pub why: String,
}

/// How many pairs are compared.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ShadowSearch {
    /// At most so many: 100 unless given.
    #[serde(rename = ".limit", default, deserialize_with = "options::integer_up_to::<_, _, 200>")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<i64>, minimum = 1, maximum = 200))]
    pub limit: Option<usize>,
}

/// Of a queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "queue": "6b0003bb686c8275d70dc2f1", "shadow": "6b0003bb686c8275d70dc2f2", "share": 0.05, "pairs": 2, "same": 1, "different": 1,
    "slower": 0, "faster": 0, "task_failed": 0, "shadow_failed": 1,
    "compared": [{
        "task": "6b0003bb686c8275d8013333", "shadow": "6b0003bb9a51c2e407f1aa20", "verdict": "different", "different": ["status", "stdout"],
        "was": 1.5, "is": 1.6, "differences": [{ "name": "stdout", "difference": "@@ -1 +1 @@\n-two\n+2\n" }],
    }],
})))]
pub struct Shadows {
    /// The queue's id.
    pub queue: String,
    /// The id of the queue of the shadows; null if it has none.
    pub shadow: Option<String>,
    /// Which part of its tasks has a shadow; null if none does.
    pub share: Option<f64>,
    /// How many pairs are compared: the latest whose shadow has ended.
    pub pairs: u64,
    /// How many of these came out the same in about the same time.
    pub same: u64,
    pub different: u64,
    /// How many came out the same, and the shadow took longer.
    pub slower: u64,
    pub faster: u64,
    /// Of how many the task has failed, and its shadow has succeeded.
    pub task_failed: u64,
    /// Of how many the shadow has failed, and its task has succeeded.
    pub shadow_failed: u64,
    pub compared: Vec<ShadowPair>,
}

/// A task and its shadow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShadowPair {
    /// The task's id.
    pub task: String,
    /// The id of its shadow.
    pub shadow: String,
    /// `same`, `different`, `slower` or `faster`.
    pub verdict: String,
    /// What is different: `status`, `exit`, `result`, `stdout`, `stderr`.
    pub different: Vec<String>,
    /// How long the task took, in seconds.
    pub was: Option<f64>,
    /// How long its shadow took.
    pub is: Option<f64>,
    /// How texts differ, of the first pairs that do.
    pub differences: Vec<ShadowDifference>,
}

/// How a text differs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShadowDifference {
    /// `result`, `stdout` or `stderr`.
    pub name: String,
    /// A unified difference; empty if they differ in bytes that are no text.
    pub difference: String,
}
