//! Answers of people to what a task has asked, and links by which they are given.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::liberal::given;

/// The answer to what a task has asked. A form has a field for each of the question's form in place of `value`, named by its JSON Pointer.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"value": {"go": true}})))]
pub struct NewAnswer {
    /// It has to fit the question's form.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, required = true))]
    pub value: Option<Value>,
}

/// What came of an answer.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({"id": "6b0003bb686c8275d8013333", "status": -2})))]
pub struct AnswerResult {
    /// The task's id.
    pub id: String,
    /// -2, queued; or -4 if it waits for its locks.
    pub status: i64,
}

/// A link by which one question can be answered without a login.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "path": "/answers/6b0003bb686c8275d8013333-0a..",
    "until": "2026-11-27T08:24:27",
})))]
pub struct AnswerLink {
    /// The task's id.
    pub id: String,
    /// Where the question is, on this server. Whoever has it can answer: it is shown once.
    pub path: String,
    /// Until when it holds, UTC, unless the question is answered before.
    pub until: String,
}
