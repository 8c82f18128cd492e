//! The key `container` of a manifest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Wrong;
use crate::config::memory_limit;

/// Where the private folder is in the container unless the manifest says otherwise.
const WORKDIR: &str = "/work";

/// The fewest thousandths of a processor that can be given away.
const LEAST_CPUS: f64 = 0.001;

/// The most processors that anybody has.
const MOST_CPUS: f64 = 4096.0;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Container {
    /// The image; empty where `config` has it, or tasks may.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// In place of the image's command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// In place of the image's entry point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Further variables. `{{secret:NAME}}` in a value stands for a named secret of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What it sees of the host besides the private folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// The network, as the container engine names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The user in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where the private folder is in it, and where it begins.
    #[serde(skip_serializing_if = "super::super::is_default")]
    pub workdir: Workdir,
    /// When the image is fetched.
    #[serde(skip_serializing_if = "super::super::is_default")]
    pub pull: Pull,
    /// The named secret of the node with which it is fetched: `user:password`, or what Docker keeps in `config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry_secret: Option<String>,
    /// The most that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ContainerLimits>,
    /// The socket of the container engine; as the node is configured when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// What Docker's interface takes to create a container. The keys above come before what is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    /// Whether a task may bring that itself, as its parameter `Container.Config`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub config_from_params: bool,
}

/// A folder of a container: [`WORKDIR`] unless another one is named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Workdir(String);

impl Default for Workdir {
    fn default() -> Self {
        Self(WORKDIR.to_owned())
    }
}

/// A folder or file of the host that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where it is on the host, absolute.
    pub source: String,
    /// Where it is in the container, absolute.
    pub target: String,
    /// Whether the container may not write there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// When an image is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pull {
    /// For each task.
    Always,
    /// When the host does not have it.
    #[default]
    Missing,
    /// Never: the host has it, or the task fails.
    Never,
}

/// The most that a container may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerLimits {
    /// Bytes of memory.
    #[serde(deserialize_with = "memory_limit", skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processors: 0.5 is half the time of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
}

/// The engine gets it as a part of a mount, which Podman puts together as text: a comma would begin another part of that.
fn is_plain_path(path: &str) -> bool {
    let is_plain = |part: &str| {
        part != ".." && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    path.starts_with('/') && path.split('/').all(is_plain)
}

impl Container {
    pub(in super::super) fn check(&self) -> Result<(), Wrong> {
        let image_in = |config: &Map<String, Value>| {
            config.get("Image").and_then(Value::as_str).is_some_and(|image| !image.is_empty())
        };
        let has_image = !self.image.is_empty() || self.config.as_ref().is_some_and(image_in);
        if !has_image && !self.config_from_params {
            return Err(("image", "must be given".to_owned()));
        }
        if !is_plain_path(&self.workdir.0) {
            let expected = "expected an absolute path of letters, digits and ._- without ..";
            return Err(("workdir", format!("{expected}, got {:?}", self.workdir.0)));
        }
        let is_relative = |mount: &&Mount| !mount.source.starts_with('/') || !mount.target.starts_with('/');
        if let Some(Mount { source, target, .. }) = self.mounts.iter().find(is_relative) {
            return Err(("mounts", format!("expected absolute paths, got {source:?} and {target:?}")));
        }
        let limits = self.limits.unwrap_or_default();
        if let Some(cpus) = limits.cpus.filter(|cpus| !(LEAST_CPUS..=MOST_CPUS).contains(cpus)) {
            return Err(("limits.cpus", format!("expected a number of processors, got {cpus}")));
        }
        if limits.pids == Some(0) {
            return Err(("limits.pids", "must be at least 1".to_owned()));
        }
        super::check_variables("env", &self.env)
    }

    pub(in super::super) fn told(&self) -> Value {
        let pull = serde_json::to_value(self.pull).unwrap_or(Value::Null);
        super::told(self, [("workdir", self.workdir.0.clone().into()), ("pull", pull)])
    }
}
