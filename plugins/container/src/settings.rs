//! What the manifest of the plugin says of its container, checked when it was read: keys that are not known here are not
//! looked at.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

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
