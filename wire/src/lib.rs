//! Requests and answers of the REST API, one type for each. The DCI reads and writes them, OpenAPI describes them, forms have their fields,
//! and the command line has them as options: a field is declared here, and nowhere else.

pub mod accounts;
pub mod admission;
pub mod arrays;
pub mod bulk;
pub mod bundles;
pub mod calendars;
pub mod definitions;
pub mod explanations;
pub mod files;
pub mod history;
pub mod liberal;
pub mod locks;
pub mod nodes;
pub mod options;
pub mod queues;
pub mod schedules;
pub mod search;
pub mod seconds;
pub mod subscriptions;
pub mod task_actions;
pub mod tenants;

use serde::{Deserialize, Serialize};

/// A value that is an object. OpenAPI describes it so because of this name.
pub type Object = serde_json::Value;

/// An id of the database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"$oid": "6b0003bb686c8275d70dc2f1"})))]
pub struct Oid {
    /// 24 hexadecimal digits.
    #[serde(rename = "$oid")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{24}$"))]
    pub oid: String,
}
