//! A node: one DEN's entry in the database.

use bson::oid::ObjectId;
use bson::{Bson, Document};
use serde::{Deserialize, Serialize};

use super::liberal::present;
use super::{Count, Moment, TaskId};

/// A document of `nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its id.
    #[serde(rename = "_id")]
    pub id: ObjectId,
    /// The node's name, unique.
    pub node: Bson,
    /// When its DEN was last alive.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Moment>,
    /// How many tasks may run on it at once; no limit when unset.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub maxthreads: Option<Count>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub rest: Document,
}

impl Node {
    /// How many tasks may run on the node at once, `None` for no limit.
    pub fn thread_limit(&self) -> Option<u64> {
        self.maxthreads.as_ref().and_then(Count::get)
    }

    /// Whether an operator wants it to claim nothing more.
    pub fn is_draining(&self) -> bool {
        self.rest.get("draining").and_then(Bson::as_bool).unwrap_or(false)
    }

    /// Tasks of this node whose end somebody has asked for.
    pub fn attention(&self) -> Vec<TaskId> {
        let listed = self.rest.get_array("attention").map(Vec::as_slice).unwrap_or_default();
        listed.iter().filter_map(Bson::as_object_id).map(TaskId).collect()
    }
}
