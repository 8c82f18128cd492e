//! What the runner tells, as far as a container is about it; with it what the manifest of the plugin says, checked when it was read: keys that
//! are not known here are not looked at.

use std::collections::BTreeMap;
use std::fmt;

use disbatch_adapter::Line;
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

/// The section `container` of a manifest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The image. Empty: it comes from elsewhere.
    pub image: String,
    /// In place of the image's command.
    pub command: Option<Vec<String>>,
    /// In place of the image's entry point.
    pub entrypoint: Option<Vec<String>>,
    pub env: BTreeMap<String, String>,
    /// What the container sees of the host besides the private folder.
    pub mounts: Vec<Mount>,
    pub network: Option<String>,
    /// The user in the container.
    pub user: Option<String>,
    /// Where the private folder is in the container.
    pub workdir: String,
    pub pull: Pull,
    /// The named secret with which it is fetched.
    pub registry_secret: Option<String>,
    pub limits: Option<Limits>,
    /// The socket of the container engine.
    pub socket: Option<String>,
    /// What Docker's interface takes to create a container.
    pub config: Option<Map<String, Value>>,
    /// Whether the task may bring a part of that.
    pub config_from_params: bool,
}

/// A folder or file of the host that the container sees.
#[derive(Debug, Clone, Deserialize)]
pub struct Mount {
    /// Where it is on the host.
    pub source: String,
    /// Where it is in the container.
    pub target: String,
    #[serde(default)]
    pub read_only: bool,
}

/// When an image is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pull {
    /// For each task.
    Always,
    /// When the host does not have it.
    #[default]
    Missing,
    Never,
}

/// The most that a container may use.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

impl Settings {
    /// Where the private folder is in the container.
    pub fn folder(&self) -> &str {
        match self.workdir.trim_end_matches('/') {
            "" => "/work",
            folder => folder,
        }
    }

    /// The image that the manifest names, if it names one.
    pub fn own_image(&self) -> Option<&str> {
        let of_config = self.config.as_ref().and_then(|config| config.get("Image")).and_then(Value::as_str);
        [Some(self.image.as_str()), of_config].into_iter().flatten().find(|image| !image.is_empty())
    }
}

/// Where a task may bring what its container is like.
const CONFIG: &str = "/Container/Config";

pub type Worker = disbatch_adapter::Worker<Settings, EngineConfig>;

/// All that the runner tells.
pub struct ContainerInput {
    pub worker: Worker,
    /// The task as a line for the container. Secure parameters are in it.
    pub task: Zeroizing<String>,
    /// What the task brings, where the manifest allows it to.
    pub brought: Option<Map<String, Value>>,
}

/// What the node says of its container engine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EngineConfig {
    pub socket: Option<String>,
}

impl fmt::Debug for ContainerInput {
    /// Shows nothing of parameters and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContainerInput({}, attempt {})", self.worker.task_id(), self.worker.attempt())
    }
}

impl ContainerInput {
    /// Reads the line. An error shows nothing of what is in it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let wrong = |what: String| format!("this is not the task of a container: {what}");
        let line: Line<'_, Settings, EngineConfig> = Line::parse(line).map_err(wrong)?;
        let task = line.task().map_err(wrong)?;
        let brought =
            if line.worker.settings.config_from_params { brought(&line.field("params"))? } else { None };
        Ok(Self { worker: line.worker, task, brought })
    }

    /// The node whose runner has started this.
    pub fn node(&self) -> &str {
        self.worker.variable("DISBATCH_NODE").unwrap_or_default()
    }
}

fn brought(params: &Value) -> Result<Option<Map<String, Value>>, String> {
    match params.pointer(CONFIG) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(config)) => Ok(Some(config.clone())),
        Some(_) => Err("params.Container.Config: expected an object".to_owned()),
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    pub fn told(settings: &Value, params: &Value) -> ContainerInput {
        let variables = json!({ "DISBATCH_TASK_ID": "0a", "DISBATCH_ATTEMPT": "3", "DISBATCH_NODE": "n1", "JOB_ID": "j" });
        let worker = json!({
            "name": "Boxed", "engine": "container", "settings": settings, "engine_config": {},
            "secrets": { "token": "horse" }, "variables": variables, "work_dir": "/tmp/disbatch-0a", "database": "d",
            "grace": 60.0,
        });
        let line = json!({ "_id": { "$oid": "0a" }, "params": params, "worker": worker }).to_string();
        ContainerInput::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn tasks_bring_what_their_container_is_like_only_where_they_may() {
        let params = json!({ "Container": { "Config": { "Image": "x" } } });
        assert_eq!(told(&json!({ "image": "i" }), &params).brought, None);
        let allowed = json!({ "config_from_params": true });
        assert_eq!(told(&allowed, &params).brought.unwrap()["Image"], "x");
        assert_eq!(told(&allowed, &json!({ "Container": {} })).brought, None);
        assert_eq!(told(&allowed, &json!("text")).brought, None);
    }

    #[test]
    fn how_long_there_is_to_end_and_which_database_it_is_comes_from_the_runner() {
        let told = told(&json!({ "image": "i" }), &json!({}));
        assert_eq!((told.worker.grace().as_secs(), told.worker.database.as_deref()), (57, Some("d")));
    }
}
