//! Rules of admission: what becomes of whose new tasks.

use disbatch_values::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::liberal::Set;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(rename_all = "lowercase"))]
pub enum AdmissionKind {
    All,
    Queue,
    Tenant,
    Owner,
}

words! {
    // From the mildest to the strictest.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "lowercase")]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum AdmissionAction {
        Accept = "accept",
        // They are taken, and held until no rule holds them any more.
        Pause = "pause",
        Reject = "reject",
    }
}

/// A rule about new tasks. For `queue`, `tenant` and `owner` it needs a value.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "scope": "queue", "value": "mail", "action": "reject", "reason": "upgrade",
})))]
pub struct AdmissionChange {
    /// Which tasks.
    #[cfg_attr(feature = "openapi", schema(value_type = AdmissionKind))]
    pub scope: String,
    /// A queue's name or id, a tenant, or a user's login name.
    #[cfg_attr(feature = "openapi", schema(max_length = 200))]
    pub value: Option<String>,
    /// What becomes of them.
    pub action: AdmissionAction,
    /// Why, for those who are refused and for the record.
    #[cfg_attr(feature = "openapi", schema(max_length = 200))]
    pub reason: Option<String>,
}

/// Which tasks a rule is about: the parameters of `DELETE /admission`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(description = "The same in a form.", example = json!({"scope": "queue", "value": "mail"})))]
pub struct AdmissionLift {
    /// Which tasks.
    #[cfg_attr(feature = "openapi", schema(value_type = AdmissionKind))]
    pub scope: Set<Value>,
    /// A queue's name or id, a tenant, or a user's login name.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub value: Set<Value>,
}

/// All rules that one may see.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Admission {
    pub rules: Vec<AdmissionRule>,
}

/// A rule, and what it has come to. Above 10,000 tasks, 10,001 is told; null if counting takes too long, or if tasks are taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "scope": "queue", "value": "6b0003bb686c8275d70dc2f1", "name": "mail", "action": "reject", "reason": "upgrade",
    "by": "anna from 192.0.2.7", "at": "2026-11-20T08:24:27", "waiting": 0, "held": 0, "running": 0, "safe": true,
    "text": "empty: safe to upgrade",
})))]
pub struct AdmissionRule {
    #[cfg_attr(feature = "openapi", schema(value_type = AdmissionKind))]
    pub scope: String,
    /// The id of a queue, or a name.
    pub value: Option<String>,
    /// The queue's name, if it is still there.
    pub name: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<AdmissionAction>))]
    pub action: Option<String>,
    pub reason: Option<String>,
    /// Who made it.
    pub by: Option<String>,
    /// When, UTC.
    pub at: Option<String>,
    /// Tasks that wait.
    pub waiting: Option<u64>,
    /// Those of them that a rule holds.
    pub held: Option<u64>,
    /// Those that wait in queues that start nothing, as they are paused or have no threads, and are not held.
    pub stopped: Option<u64>,
    /// Tasks that are claimed or run.
    pub running: Option<u64>,
    /// Some of the tasks that are still to come to their end, those that run first: `task`, `queue`, `status` and `node`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Object>>))]
    pub left: Vec<TaskLeft>,
    /// The oldest tasks that are claimed or running on nodes that are not alive: `task` and `node`. Without a lease, as Perl's, nobody
    /// ends them.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Object>>))]
    pub stranded: Vec<TaskStranded>,
    /// Whether nothing runs, nothing waits but what is held or in queues that start nothing, and nothing more can come.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    pub safe: bool,
    /// The same in words.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub text: String,
}

/// A task that is still to come to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLeft {
    pub task: String,
    /// The name of its queue, or its id.
    pub queue: String,
    pub status: i64,
    pub node: Option<String>,
}

/// A task that nobody may ever end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStranded {
    pub task: String,
    pub node: String,
}

/// What came of lifting a rule.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"lifted": true, "released": 12})))]
pub struct AdmissionLifted {
    pub lifted: bool,
    /// How many held tasks go on.
    pub released: u64,
}
