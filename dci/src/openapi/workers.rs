//! What workers look like. These types are never made: they only describe.

use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A plugin that the database defines.
#[derive(ToSchema)]
#[schema(example = json!({
    "name": "My::Report", "engine": "http", "description": "Writes reports", "version": "",
    "runs": "https://reports.example/run", "problem": null,
    "definition": {
        "engine": "http", "description": "Writes reports",
        "http": {"url": "https://reports.example/run", "headers": {"Authorization": "(hidden)"}},
    },
    "rev": 1, "by": "anna from 192.0.2.7", "at": "2026-11-20T08:24:27",
}))]
pub struct Worker {
    /// The plugin's name.
    name: String,
    /// `container`, `http` or `kubernetes`; null if it makes no plugin.
    engine: Option<String>,
    description: String,
    version: String,
    /// The image or the address, if it has one.
    runs: String,
    /// Why it makes no plugin, if it makes none.
    problem: Option<String>,
    /// What was defined. Values of headers and variables are `(hidden)`, save for administrators.
    #[schema(value_type = Object)]
    definition: Map<String, Value>,
    /// It grows with each change; 0 if the document was put into the database by other means.
    rev: i64,
    /// Who has changed it last.
    by: Option<String>,
    at: Option<String>,
}

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

/// Whether a definition could be stored.
#[derive(ToSchema)]
#[schema(example = json!({"valid": false, "error": "worker.image: must be given"}))]
pub struct WorkerCheck {
    valid: bool,
    /// What is wrong.
    error: Option<String>,
    name: Option<String>,
    engine: Option<String>,
    /// The manifest that it is.
    #[schema(value_type = Option<Object>)]
    plugin: Option<Map<String, Value>>,
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

/// What became of them, by name.
#[derive(ToSchema)]
#[schema(example = json!({"created": ["csv"], "updated": [], "unchanged": [], "left": [], "warnings": []}))]
pub struct WorkersImported {
    created: Vec<String>,
    updated: Vec<String>,
    unchanged: Vec<String>,
    /// There is another of this name.
    left: Vec<String>,
    /// Which of them no node can run now, and why.
    warnings: Vec<String>,
}

/// A worker that is gone.
#[derive(ToSchema)]
#[schema(example = json!({"name": "My::Report", "deleted": true, "queues": ["reports"]}))]
pub struct WorkerDeleted {
    name: String,
    deleted: bool,
    /// Queues of this plugin, whose tasks wait now.
    queues: Vec<String>,
}
