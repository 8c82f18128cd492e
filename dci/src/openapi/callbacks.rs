//! What web services send. These types are never made: they only describe.

use serde_json::Value;
use utoipa::ToSchema;

/// How a task of a web service has ended.
#[derive(ToSchema)]
#[schema(example = json!({"status": "FINISHED", "message": "3 rows", "result": {"rows": 3}}))]
pub struct CallbackStatus {
    /// `FINISHED`, `FAILED`, `ABORTED`, or a positive number.
    status: Value,
    /// What there is to say about it, at most 64 KiB: a note of the task's history, and its standard error unless it has
    /// succeeded.
    message: Option<String>,
    /// The task's structured result.
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
}
