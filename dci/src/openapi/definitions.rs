//! What definitions of plugins look like when they are sent, and what web services send. These types are never made: they
//! only describe.

use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The manifest of a plugin with its name. In place of the manifest there may be `worker`, in the form of the lex jobs-scheduler.
#[derive(ToSchema)]
#[schema(example = json!({"_id": "My::Report", "engine": "http", "http": {"url": "https://reports.example/run"}}))]
pub struct NewWorker {
    /// The plugin's name: letters, digits, `_` and `:`. `name` will do as well.
    #[schema(rename = "_id")]
    id: String,
    /// `container`, `http` or `kubernetes`.
    engine: Option<String>,
    description: Option<String>,
    version: Option<String>,
    /// JSON Schema of the parameters of its tasks.
    #[schema(value_type = Option<Object>)]
    params: Option<Map<String, Value>>,
    /// What forms of new tasks and schedules begin with.
    #[schema(value_type = Option<Object>)]
    template: Option<Map<String, Value>>,
    /// What the engine has to know.
    #[schema(value_type = Option<Object>)]
    container: Option<Map<String, Value>>,
    #[schema(value_type = Option<Object>)]
    http: Option<Map<String, Value>>,
    #[schema(value_type = Option<Object>)]
    kubernetes: Option<Map<String, Value>>,
    /// All of it, in the form of the lex jobs-scheduler: `name`, `description`, `engine`, `image`, `url`, `httpHeaders`, `timeout`
    /// and `template`.
    #[schema(value_type = Option<Object>)]
    worker: Option<Map<String, Value>>,
}

/// The same without a name.
#[derive(ToSchema)]
#[schema(example = json!({"engine": "http", "http": {"url": "https://reports.example/run"}, ".rev": 1}))]
pub struct WorkerDefinition {
    /// `container`, `http` or `kubernetes`.
    engine: Option<String>,
    /// The revision that this is a change of.
    #[schema(rename = ".rev")]
    rev: Option<i64>,
}

/// Definitions from elsewhere. A list of them will do as well.
#[derive(ToSchema)]
#[schema(example = json!({
    "documents": [{"_id": "csv", "worker": {"name": "CSV upload", "image": "registry.example/csv"}}], "replace": true,
}))]
pub struct WorkersImport {
    #[schema(value_type = Vec<Object>)]
    documents: Vec<Map<String, Value>>,
    /// Whether they take the place of workers of their names.
    replace: Option<bool>,
}

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
