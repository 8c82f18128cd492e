//! A node: one DEN's entry in the database.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use disbatch_values::liberal::integer;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::document::{Stored, required};
use super::{Count, Labels, Moment, TaskId};

/// A document of `nodes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    #[serde(rename = "_id")]
    pub id: ObjectId,
    /// The node's name, unique.
    pub node: Bson,
    /// When its DEN was last alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Moment>,
    /// How many tasks may run on it at once; no limit when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxthreads: Option<Count>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub rest: Document,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored(mut rest) = Stored::deserialize(deserializer)?;
        Ok(Self {
            id: required(&mut rest, "_id")?,
            node: rest.remove("node").ok_or_else(|| de::Error::missing_field("node"))?,
            timestamp: rest.remove("timestamp").map(Moment),
            maxthreads: rest.remove("maxthreads").map(Count),
            rest,
        })
    }
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

    /// Whether what runs on it is to go on elsewhere where it can, while it claims nothing more.
    pub fn interrupts(&self) -> bool {
        self.is_draining() && self.rest.get("interrupt").and_then(Bson::as_bool).unwrap_or(false)
    }

    /// Whether a DEN keeps the entry that tells more of itself than Perl's, which writes the name and a time.
    pub fn is_ours(&self) -> bool {
        self.rest.contains_key("instance")
    }

    /// What its DEN said last: `alive`, `draining` or `stopped`; or `dead`, which another one noticed. `None` for
    /// Perl's.
    pub fn state(&self) -> Option<&str> {
        self.rest.get("state").and_then(Bson::as_str)
    }

    /// When its DEN was last alive by the server's clock, and for how long it may be silent. `None` for Perl's,
    /// and after an end on purpose.
    pub fn last_beat(&self) -> Option<(DateTime, Duration)> {
        let seen = self.rest.get("seen").and_then(Bson::as_datetime)?;
        let lease = self.rest.get("lease_ms").and_then(integer).and_then(|ms| u64::try_from(ms).ok())?;
        Some((*seen, Duration::from_millis(lease)))
    }

    pub fn labels(&self) -> Labels {
        Labels::of(self.rest.get("labels").and_then(Bson::as_document))
    }

    /// The start of the DEN that wrote the entry last. `None` for Perl's.
    pub fn instance(&self) -> Option<&str> {
        self.rest.get("instance").and_then(Bson::as_str)
    }

    /// Tasks of this node whose end somebody has asked for.
    pub fn attention(&self) -> Vec<TaskId> {
        let listed = self.rest.get_array("attention").map(Vec::as_slice).unwrap_or_default();
        listed.iter().filter_map(Bson::as_object_id).map(TaskId).collect()
    }
}
