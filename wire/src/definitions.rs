//! Plugins, and definitions of them that the database has, known to clients as workers.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Object;

/// A plugin that the database defines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Worker, example = json!({
    "name": "My::Report", "engine": "http", "description": "Writes reports", "version": "",
    "runs": "https://reports.example/run", "problem": null,
    "definition": {
        "engine": "http", "description": "Writes reports",
        "http": {"url": "https://reports.example/run", "headers": {"Authorization": "(hidden)"}},
    },
    "rev": 1, "by": "anna from 192.0.2.7", "at": "2026-11-20T08:24:27",
})))]
pub struct Definition {
    /// The plugin's name.
    pub name: String,
    /// `container`, `http` or `kubernetes`; null if it makes no plugin.
    pub engine: Option<String>,
    pub description: String,
    pub version: String,
    /// The image or the address, if it has one.
    pub runs: String,
    /// Why it makes no plugin, if it makes none.
    pub problem: Option<String>,
    /// What was defined. Values of headers and variables are `(hidden)`, save for administrators.
    pub definition: Object,
    /// It grows with each change; 0 if the document was put into the database by other means.
    pub rev: i64,
    /// Who has changed it last.
    pub by: Option<String>,
    pub at: Option<String>,
}

/// A plugin that queues may be created with: its name; with `.details`, an object.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ListedPlugin {
    /// Its name.
    Name(String),
    /// What is known of it.
    Detailed(DetailedPlugin),
}

/// A plugin and its versions.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"name": "My::Mail", "versions": ["1.2.0", "1.3.0"]})))]
pub struct DetailedPlugin {
    pub name: String,
    /// Those that this server or a node that is alive has, in the order of text. Queues may pin them.
    pub versions: Vec<String>,
}

/// Whether a definition could be stored.
#[skip_serializing_none]
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkerCheck, example = json!({
    "valid": false, "error": "worker.image: must be given",
})))]
pub struct DefinitionCheck {
    pub valid: bool,
    /// What is wrong.
    pub error: Option<String>,
    pub name: Option<String>,
    pub engine: Option<String>,
    /// The manifest that it is.
    pub plugin: Option<Object>,
}

/// What became of them, by name.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkersImported, example = json!({
    "created": ["csv"], "updated": [], "unchanged": [], "left": [], "warnings": [],
})))]
pub struct DefinitionsImported {
    pub created: Vec<String>,
    pub updated: Vec<String>,
    pub unchanged: Vec<String>,
    /// There is another of this name.
    pub left: Vec<String>,
    /// Which of them no node can run now, and why, and which web services have to learn to show a token.
    pub warnings: Vec<String>,
}

/// A worker that is gone.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkerDeleted, example = json!({
    "name": "My::Report", "deleted": true, "queues": ["reports"],
})))]
pub struct DefinitionDeleted {
    pub name: String,
    pub deleted: bool,
    /// Queues of this plugin, whose tasks wait now.
    pub queues: Vec<String>,
}
