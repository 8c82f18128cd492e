//! `plugin.json`: what a plugin's author says of it.

mod sections;
mod warm;

use disbatch_documents::{PluginName, Version, VersionError};
use disbatch_values::json::to_strict;
use disbatch_values::sections::is_default;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::Engine;
use crate::config::Limits;

pub use disbatch_values::sections::{CallbackAuth, Container, Http, Kubernetes};
pub use sections::{Perl, Program, ProgramType};
pub use warm::{Batch, Warm};

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The name that queues refer to, `My::Plugin` for instance.
    pub name: PluginName,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What pages call its tasks, of queues that do not say it: text in which braces stand for parameters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The plugin's own version. Queues can pin it if it is a [`Version`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub engine: Engine,
    /// Program and arguments, of the engines that run a program of the plugin's author.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Whether `params.command` of a task is started in place of `command` where that can be done: with the parameters that
    /// `Disbatch::Plugin::Shell` has, and to the same effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub command_in_params: bool,
    /// Whether one process takes many tasks, and how long it is kept. None: each task has a process of its own.
    #[serde(default, deserialize_with = "warm::deserialize", serialize_with = "warm::serialize")]
    pub warm: Option<Warm>,
    /// The most that it may use. What the node allows at most holds as well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Limits,
    /// Whether it finds secure parameters in a variable, too. What the node says of that comes first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secure_params_in_environment: bool,
    /// Whether it may end its tasks in transactions of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub commits: bool,
    /// Whether it stops at SIGTERM and goes on in another attempt, where its node is to be empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    /// Whether it has no effects where the variable `DISBATCH_SHADOW` is 1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// JSON Schema of a task's `params`.
    pub params: Option<Value>,
    /// What forms of new tasks and schedules begin with.
    pub template: Option<Template>,
    pub perl: Option<Perl>,
    pub program: Option<Program>,
    pub container: Option<Container>,
    pub http: Option<Http>,
    pub kubernetes: Option<Kubernetes>,
    /// Keys that nothing reads.
    #[serde(skip)]
    pub unknown_keys: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("cannot be read: {0}")]
    Read(#[source] std::io::Error),
    #[error("{}", at(path, message))]
    Invalid {
        /// The path of the key; `.` if it is not about one.
        path: String,
        message: String,
    },
}

impl ManifestError {
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), message: message.into() }
    }
}

impl Manifest {
    /// Reads a manifest, in relaxed JSON as configurations are.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let text = to_strict(text);
        let mut json = serde_json::Deserializer::from_str(&text);
        let manifest = Self::read(&mut json)?;
        json.end().map_err(|error| ManifestError::invalid(".", error.to_string()))?;
        Ok(manifest)
    }

    pub fn from_value(value: Value) -> Result<Self, ManifestError> {
        Self::read(value)
    }

    /// The manifest of the Perl module `name`, about which nothing else is known.
    pub fn of_perl_module(name: PluginName) -> Self {
        Self { engine: Engine::Perl, ..Self::bare(name) }
    }

    pub fn of_program(name: PluginName, program: Program) -> Self {
        Self { engine: Engine::Program, program: Some(program), ..Self::bare(name) }
    }

    fn bare(name: PluginName) -> Self {
        Self {
            name,
            description: String::new(),
            title: String::new(),
            version: String::new(),
            engine: Engine::default(),
            command: Vec::new(),
            command_in_params: false,
            warm: None,
            limits: Limits::default(),
            secure_params_in_environment: false,
            commits: false,
            interruptible: false,
            shadow: false,
            params: None,
            template: None,
            perl: None,
            program: None,
            container: None,
            http: None,
            kubernetes: None,
            unknown_keys: Vec::new(),
        }
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, ManifestError> {
        let mut unknown_keys = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let deserializer = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        let mut note = |key: serde_ignored::Path<'_>| unknown_keys.push(key.to_string());
        let parsed: Result<Self, _> =
            Self::deserialize(serde_ignored::Deserializer::new(deserializer, &mut note));
        let mut manifest =
            parsed.map_err(|error| ManifestError::invalid(track.path().to_string(), error.to_string()))?;
        check(&manifest)?;
        manifest.unknown_keys = unknown_keys;
        Ok(manifest)
    }

    /// The version that queues can pin, if it says one.
    pub fn version(&self) -> Result<Option<Version>, VersionError> {
        if self.version.is_empty() { Ok(None) } else { self.version.parse().map(Some) }
    }

    /// Whether each of its tasks has a private folder in any case.
    pub fn has_folder(&self) -> bool {
        self.warm.is_none_or(|warm| warm.folder)
    }

    /// What a program of Disbatch 4.4 is given. `None`: it is no such program.
    pub fn program_type(&self) -> Option<ProgramType> {
        let is_program = self.engine == Engine::Program;
        is_program.then(|| self.program.as_ref().map_or(ProgramType::Default, |program| program.kind))
    }

    /// What the adapter of its engine is told, with what holds by default. `None`: it has no adapter.
    pub fn settings(&self) -> Option<Value> {
        match self.engine {
            Engine::Exec | Engine::Perl | Engine::Program => None,
            Engine::Container => Some(self.container.clone().unwrap_or_default().told()),
            Engine::Http => Some(self.http.clone().unwrap_or_default().told()),
            Engine::Kubernetes => Some(self.kubernetes.clone().unwrap_or_default().told()),
        }
    }
}

/// What is wrong, and where if that is known: not where the text is no JSON.
fn at(path: &str, message: &str) -> String {
    match path {
        "" | "." | "?" => message.to_owned(),
        key => format!("{key}: {message}"),
    }
}

/// Whether the keys of a manifest fit the engine and each other.
fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    let engine = manifest.engine;
    let wrong = |key: &str, message: String| Err(ManifestError::invalid(key, message));
    let others = |of: &str| format!("is for the engine {of}, and this plugin has the engine {engine}");
    for (of, is_there) in sections_of(manifest) {
        if is_there && of != engine {
            return wrong(of.as_str(), others(of.as_str()));
        }
    }
    if manifest.warm.is_some() && engine != Engine::Exec {
        return wrong("warm", others(Engine::Exec.as_str()));
    }
    if manifest.command_in_params && engine != Engine::Exec {
        return wrong("command_in_params", others(Engine::Exec.as_str()));
    }
    if manifest.command_in_params && manifest.warm.is_some() {
        return wrong("command_in_params", "is not to be set beside warm".to_owned());
    }
    if manifest.commits && engine == Engine::Http {
        return wrong(
            "commits",
            "is not for the engine http: a service ends its tasks by calling back".to_owned(),
        );
    }
    for (key, is_set) in [("interruptible", manifest.interruptible), ("shadow", manifest.shadow)] {
        if is_set && !matches!(engine, Engine::Exec | Engine::Perl | Engine::Program) {
            return wrong(key, format!("is for the engines exec, perl and program, not for {engine}"));
        }
        // What a process is told when it starts holds for all tasks that it takes.
        if is_set && manifest.warm.is_some() {
            return wrong(key, "is not to be set beside warm".to_owned());
        }
    }
    if manifest.shadow && manifest.program_type() == Some(ProgramType::Handoff) {
        return wrong("shadow", "is not for a program that is a runner itself".to_owned());
    }
    match engine {
        Engine::Exec if manifest.command.is_empty() => {
            return wrong("command", "must name a program".to_owned());
        }
        Engine::Exec | Engine::Program => {}
        Engine::Perl | Engine::Container | Engine::Http | Engine::Kubernetes => {
            if !manifest.command.is_empty() {
                return wrong("command", others("exec or program"));
            }
        }
    }
    check_section(manifest)
        .map_err(|(key, message)| ManifestError::invalid(format!("{engine}.{key}"), message))
}

fn sections_of(manifest: &Manifest) -> [(Engine, bool); 5] {
    [
        (Engine::Perl, manifest.perl.is_some()),
        (Engine::Program, manifest.program.is_some()),
        (Engine::Container, manifest.container.is_some()),
        (Engine::Http, manifest.http.is_some()),
        (Engine::Kubernetes, manifest.kubernetes.is_some()),
    ]
}

/// Whether the section of its engine is all right. What has to be in it is missing where there is none.
fn check_section(manifest: &Manifest) -> Result<(), (&'static str, String)> {
    match manifest.engine {
        Engine::Exec => Ok(()),
        Engine::Perl => manifest.perl.as_ref().map_or(Ok(()), Perl::check),
        Engine::Program => {
            manifest.program.as_ref().map_or(Ok(()), |program| program.check(!manifest.command.is_empty()))
        }
        Engine::Container => manifest.container.clone().unwrap_or_default().check(),
        Engine::Http => manifest.http.as_ref().map_or(Ok(()), Http::check),
        Engine::Kubernetes => manifest.kubernetes.clone().unwrap_or_default().check(),
    }
}

/// What a plugin's author fills forms of new tasks and schedules in with: what their fields have at first. Nothing of it applies by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Template {
    /// What a schedule is called.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// Options of the task as `POST /tasks` has them, without their dot: `{"timeout": 60}`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}

impl Template {
    /// An option as a field of a form has it; empty if it is not set.
    pub fn option(&self, name: &str) -> String {
        match self.options.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
