//! `plugin.json`: what a plugin's author says of it.

mod warm;

use serde::Deserialize;

pub use warm::Warm;

use crate::model::PluginName;

/// The contents of a `plugin.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Manifest {
    /// The name that queues refer to, `My::Plugin` for instance.
    pub name: PluginName,
    /// One sentence for people.
    #[serde(default)]
    pub description: String,
    /// The plugin's own version.
    #[serde(default)]
    pub version: String,
    /// How the plugin is run.
    #[serde(default)]
    pub engine: Engine,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether one process takes many tasks, and how long it is kept. None: each task has a process of its own.
    #[serde(default, deserialize_with = "warm::deserialize")]
    pub warm: Option<Warm>,
    /// JSON Schema of a task's `params`.
    #[serde(default)]
    pub params: Option<serde_json::Value>,
    /// Keys that nothing reads.
    #[serde(skip)]
    pub unknown_keys: Vec<String>,
}

/// How a plugin is run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// As a program: the task on its standard input, its output as the task's.
    #[default]
    Exec,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[source] std::io::Error),
    /// A value is wrong.
    #[error("{path}: {message}")]
    Invalid {
        /// The path of the key.
        path: String,
        /// What is wrong.
        message: String,
    },
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// It is not JSON, or a value is wrong; the error names the key.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let mut unknown_keys = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let mut json = serde_json::Deserializer::from_str(text);
        let deserializer = serde_path_to_error::Deserializer::new(&mut json, &mut track);
        let mut note = |key: serde_ignored::Path<'_>| unknown_keys.push(key.to_string());
        let parsed: Result<Self, _> =
            Self::deserialize(serde_ignored::Deserializer::new(deserializer, &mut note));
        let invalid = |path: String, message: String| ManifestError::Invalid { path, message };
        let mut manifest = parsed.map_err(|error| invalid(track.path().to_string(), error.to_string()))?;
        json.end().map_err(|error| invalid(".".to_owned(), error.to_string()))?;
        if manifest.command.is_empty() {
            return Err(invalid("command".to_owned(), "must name a program".to_owned()));
        }
        manifest.unknown_keys = unknown_keys;
        Ok(manifest)
    }
}
