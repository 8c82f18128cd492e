//! How tasks of a queue and their shadows compare.

use serde::{Deserialize, Serialize};

use crate::options;

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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
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
