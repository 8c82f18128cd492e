//! Whether all is well.

use serde::{Deserialize, Serialize};

/// What was found out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "level": "warning",
    "findings": [
        {"check": "database", "level": "ok", "subject": null, "text": "MongoDB 6.0.5, replica set rs0", "advice": null},
        {"check": "clocks", "level": "warning", "subject": "worker1", "text": "its clock is 4.2 s ahead of the database's",
         "advice": "Have NTP set the clock of this host."},
    ],
})))]
pub struct Diagnosis {
    /// The worst of all: `ok`, `warning` or `error`.
    pub level: String,
    /// In the order of the checks; of each check at least one.
    pub findings: Vec<Finding>,
}

/// What one check has found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// What was looked at: `database`, `replica_set`, `rights`, `indexes`, `disk`, `clocks`, `nodes`, `versions`, `plugins`, `queues`,
    /// `schedules` or `users`.
    pub check: String,
    /// `ok`, `warning`, `error`, or `skipped` if it could not be found out.
    pub level: String,
    /// The node, queue, schedule, index or collection.
    pub subject: Option<String>,
    /// What is so.
    pub text: String,
    /// What to do about it.
    pub advice: Option<String>,
}
