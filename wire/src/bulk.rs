//! Bulk jobs: one thing that is done to many tasks.

use disbatch_values::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::liberal::given;
use crate::{Object, options};

/// How many are answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct BulkLimit {
    /// At most so many, the latest first.
    #[serde(rename = ".limit", default, deserialize_with = "options::up_to::<_, _, 1000>")]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    pub limit: Option<i64>,
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
    pub enum BulkAction {
        /// Cancel those that have not ended
        Cancel = "cancel",
        /// Queue those that have ended once more
        Retry = "retry",
        /// Move those that have ended to the archive
        Archive = "archive",
        /// Delete those that have ended, with their output
        Delete = "delete",
    }
}

impl BulkAction {
    /// Whether it can do anything to a task with this status.
    pub const fn applies_to(self, status: i64) -> bool {
        match self {
            Self::Cancel => matches!(status, -7 | -4 | -2 | -1 | 0),
            Self::Retry | Self::Archive | Self::Delete => status >= 1 || matches!(status, -6 | -5 | -3),
        }
    }

    /// Whether it is for archived tasks too, unless its filter leaves these out.
    pub const fn reaches_archive(self) -> bool {
        matches!(self, Self::Delete)
    }
}

/// One thing to be done to many tasks. A form may have the keys of `filter` among its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "action": "cancel", "filter": {"queue": "mail"}, "reason": "sent twice",
})))]
pub struct NewBulk {
    /// What is done.
    pub action: BulkAction,
    /// To which tasks. It must have `queue` or `ids`.
    pub filter: Option<BulkFilter>,
    /// Why, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only count the tasks.
    #[serde(rename = ".preview", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    pub preview: Option<u8>,
}

/// Which tasks: all that is given must be so.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"queue": "mail", "status": [2], "older_than": 86400})))]
pub struct BulkFilter {
    /// A queue's name or id, or `*` for all queues.
    pub queue: Option<String>,
    /// A status, or several. Without it: any that the action applies to, save that a retry leaves out tasks that
    /// succeeded (1).
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<i32>>))]
    pub status: Option<Vec<i64>>,
    /// Not changed for so many seconds.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 0))]
    pub older_than: Option<Value>,
    /// Ids of tasks, at most 100,000.
    pub ids: Option<Vec<String>>,
    /// The name of the node that they were given to.
    pub node: Option<String>,
    /// The name or id of the schedule that made them.
    pub schedule: Option<String>,
    /// Their group.
    pub group: Option<String>,
    /// Their tenant.
    pub tenant: Option<String>,
    /// Tags that they must have, all of them.
    pub tags: Option<Vec<String>>,
    /// Tags of which they must have one.
    pub any_tags: Option<Vec<String>>,
    /// Made at this time or later, as their ids say: ISO 8601, UTC unless it has a zone, seconds since 1970, or an age (`2h`, `7d`).
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub created_since: Option<Value>,
    /// Made before this time.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub created_until: Option<Value>,
    /// Whether a delete is for archived tasks too, which it is unless this is false. Other actions leave them alone.
    pub archive: Option<bool>,
}

/// Which tasks are archived.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({".older_than": 604_800})))]
pub struct ArchiveOld {
    /// Not changed for so many seconds.
    #[serde(rename = ".older_than")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64, minimum = 0))]
    pub older_than: Value,
    /// Of this queue, by name or id; of all queues if none is given.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub queue: Option<Value>,
    /// Why, for the record.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Option<Value>,
}

/// The new job, or with `.preview` the number of tasks.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"id": "6b0003bb686c8275d8014444"})))]
pub struct NewBulkAnswer {
    /// The job's id.
    pub id: Option<String>,
    /// How many tasks match; null if counting takes too long.
    pub count: Option<u64>,
}

/// A bulk job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8014444", "action": "cancel", "filter": {"queue": "6b0003bb686c8275d70dc2f1"},
    "reason": null, "by": "the REST API from 127.0.0.1", "state": "running", "total": 5000, "done": 1200,
    "skipped": 0, "errors": [], "position": "6b0003bb686c8275d8013333", "created": "2026-11-20T08:24:27",
    "updated": "2026-11-20T08:24:29", "instance": "6b0003bb686c8275d8015555",
})))]
pub struct BulkJob {
    pub id: String,
    #[cfg_attr(feature = "openapi", schema(value_type = BulkAction))]
    pub action: String,
    /// As it was asked for, with the queue's id.
    pub filter: Object,
    pub reason: Option<String>,
    /// Who wanted it.
    pub by: String,
    /// `running`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// How many tasks matched when it was made; null if counting them took too long.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub total: Option<i64>,
    /// How many tasks it has changed.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub done: i64,
    /// How many needed nothing any more, or could not be acted on.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub skipped: i64,
    /// The first ten tasks that could not be acted on.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub errors: Vec<BulkError>,
    /// Why it failed; only if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The last task that was looked at.
    pub position: Option<String>,
    /// UTC.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub created: Value,
    /// When it last got on, UTC.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub updated: Value,
    /// Which server works on it.
    pub instance: String,
    /// How many tasks that come after those of a rerun wait for them again; only of a rerun that is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub downstream: Option<i64>,
}

/// A task that could not be acted on, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkError {
    pub id: String,
    pub error: String,
}
