//! What happens to tasks, for programs that follow it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::liberal::{Flag, Text};

/// Which events are wanted: all that is given must be so.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct EventSearch {
    /// Of tasks of these queues, by name or id, with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "mail"))]
    pub queue: Option<Value>,
    /// Changes to these statuses, as numbers with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "2,-6"))]
    pub status: Option<Value>,
    /// Only ends of tasks.
    #[cfg_attr(feature = "openapi", param(value_type = Option<bool>))]
    pub ended: Option<Flag>,
    /// Of tasks that this schedule made, by name or id.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub schedule: Option<Text>,
    /// Of tasks of this group.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub group: Option<Text>,
    /// Of tasks of this tenant.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub tenant: Option<Text>,
    /// Of tasks with all of these tags, with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "customer=7"))]
    pub tags: Option<Value>,
    /// Of tasks with one of these tags.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub any_tags: Option<Value>,
    /// What happened after the event with this id, for clients that cannot set the header, which goes before it.
    #[serde(rename = ".after")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub after: Option<Text>,
}

/// A change of a task's status. What the task does not have is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "queue_name": "mail", "status": 1,
    "word": "succeeded", "attempt": 1, "ended": true, "node": "worker1", "mtime": "2026-11-20T08:24:29",
})))]
pub struct TaskEvent {
    /// The task's id.
    pub id: String,
    /// The id of its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What that is called now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_name: Option<String>,
    /// What it changed to.
    pub status: i64,
    /// The same in a word.
    pub word: String,
    /// The number of the attempt, from 1 on; 0 before the first.
    pub attempt: i64,
    /// Whether the task is over.
    pub ended: bool,
    /// The node that has it, or had it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The id of the schedule that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<String>,
}
