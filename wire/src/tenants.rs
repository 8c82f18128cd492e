//! Tenants, for whom tasks are: how much of the system each may take.

use serde::{Deserialize, Serialize};
use serde_with::apply;

use crate::liberal::{Limit, given};

/// What a tenant may take at most. Null is no limit.
#[apply(Option =>
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, maximum = 1_000_000_000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N|none"))]
)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"max_queued": 1000, "max_per_day": null})))]
#[cfg_attr(feature = "cli", derive(clap::Args), group(required = true, multiple = true))]
pub struct TenantLimits {
    /// How many of its tasks may wait.
    pub max_queued: Option<Limit>,
    /// How many tasks may be submitted for it from midnight UTC on.
    pub max_per_day: Option<Limit>,
    /// How many schedules it may have.
    pub max_schedules: Option<Limit>,
}

/// What a tenant may take, and what it takes now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "tenant": "acme", "max_queued": 1000, "max_per_day": null, "max_schedules": 10, "waiting": 17, "running": 4,
    "submitted_today": 0, "schedules": 2, "queues": 1,
})))]
pub struct Tenant {
    /// Its name.
    pub tenant: String,
    pub max_queued: Option<u64>,
    pub max_per_day: Option<u64>,
    pub max_schedules: Option<u64>,
    /// Its tasks that wait.
    pub waiting: u64,
    /// Its tasks that are claimed or run.
    pub running: u64,
    /// How many tasks were submitted for it today, while it has a limit for tasks.
    pub submitted_today: u64,
    pub schedules: u64,
    /// How many queues are its own.
    pub queues: u64,
}

/// What came of removing limits.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"deleted": 1})))]
pub struct TenantDeleted {
    pub deleted: u64,
}
