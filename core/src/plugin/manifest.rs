//! `plugin.json`: what a plugin's author says of it.

mod template;
#[cfg(test)]
mod testing;
mod warm;

use serde::Deserialize;

pub use template::Template;
pub use warm::Warm;

use crate::config::Limits;
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
    /// The most that it may use. What the node allows at most holds as well.
    #[serde(default)]
    pub limits: Limits,
    /// Whether it finds secure parameters in a variable, too. What the node says of that comes first.
    #[serde(default)]
    pub secure_params_in_environment: bool,
    /// JSON Schema of a task's `params`.
    #[serde(default)]
    pub params: Option<serde_json::Value>,
    /// What forms of new tasks and schedules begin with.
    #[serde(default)]
    pub template: Option<Template>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secure_parameters_are_in_no_variable_unless_that_is_asked_for() {
        let parse = |value: &str| {
            let manifest = testing::parse("secure_params_in_environment", value);
            manifest.map(|manifest| manifest.secure_params_in_environment)
        };
        let without = Manifest::parse(r#"{ "name": "A", "command": ["a"] }"#).unwrap();
        assert!(!without.secure_params_in_environment);
        assert_eq!((parse("false"), parse("true")), (Ok(false), Ok(true)));
        let error = parse(r#""yes""#).unwrap_err();
        assert!(error.starts_with("secure_params_in_environment: invalid type"), "{error}");
    }

    #[test]
    fn a_plugin_may_have_limits() {
        let parse = |limits: &str| testing::parse("limits", limits).map(|manifest| manifest.limits);
        let expected = Limits { memory: Some(512 << 20), cpu_seconds: Some(60), ..Limits::default() };
        assert_eq!(parse(r#"{ "memory": "512M", "cpu_seconds": 60 }"#), Ok(expected));
        assert_eq!(parse("{}"), Ok(Limits::default()));
        let error = parse(r#"{ "memory": "a lot" }"#).unwrap_err();
        assert!(error.starts_with("limits.memory: expected a number of bytes"), "{error}");
        let error = parse(r#"{ "ram": 1 }"#).unwrap_err();
        assert!(error.contains("unknown field `ram`, expected one of `memory`"), "{error}");
        let without = Manifest::parse(r#"{ "name": "A", "command": ["a"] }"#).unwrap();
        assert_eq!(without.limits, Limits::default());
    }
}
