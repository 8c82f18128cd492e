//! What web services are answered when they say something about their tasks.

use serde::Serialize;

/// What was done.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "outcome": "logged",
})))]
pub struct CallbackDone {
    /// The task's id.
    pub id: String,
    /// `logged`, `stored` or `ended`.
    pub outcome: String,
}
