//! What manifests say to engines that run plugins with the means of another system, and what the configuration of a node says of these
//! engines: a section for each, which its adapter reads as well. An adapter that is older than the runner that tells it refuses keys that it does not know.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use crate::config::{OnByDefault, address, is_address, memory_limit};

/// What is wrong with a section: the key in it, and why.
pub type Wrong = (&'static str, String);

/// A section as an adapter is told of it: with the values that it has by default.
fn told(section: &impl Serialize, defaults: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let mut told = match serde_json::to_value(section) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    };
    for (key, value) in defaults {
        told.entry(key).or_insert(value);
    }
    Value::Object(told)
}

/// Whether these can be variables: names without `=`, and nothing with the byte that ends one.
fn check_variables(key: &'static str, variables: &BTreeMap<String, String>) -> Result<(), Wrong> {
    let is_wrong = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    match variables.iter().find(is_wrong) {
        Some((name, _)) => Err((key, format!("{name:?} cannot be the name of a variable, or its value"))),
        None => Ok(()),
    }
}

/// Whether this is what a manifest need not say.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where the private folder is in the container unless the manifest says otherwise.
const WORKDIR: &str = "/work";

/// The fewest thousandths of a processor that can be given away.
const LEAST_CPUS: f64 = 0.001;

/// The most processors that anybody has.
const MOST_CPUS: f64 = 4096.0;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Container {
    /// The image; empty where `config` has it, or tasks may.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// In place of the image's command.
    pub command: Option<Vec<String>>,
    /// In place of the image's entry point.
    pub entrypoint: Option<Vec<String>>,
    /// Further variables. `{{secret:NAME}}` in a value stands for a named secret of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What it sees of the host besides the private folder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// The network, as the container engine names it.
    pub network: Option<String>,
    pub user: Option<String>,
    /// Where the private folder is in it, and where it begins.
    #[serde(skip_serializing_if = "is_default")]
    pub workdir: Workdir,
    #[serde(skip_serializing_if = "is_default")]
    pub pull: Pull,
    /// The named secret of the node with which it is fetched: `user:password`, or what Docker keeps in `config.json`.
    pub registry_secret: Option<String>,
    pub limits: Option<ContainerLimits>,
    /// The socket of the container engine; as the node is configured when unset.
    pub socket: Option<String>,
    /// What Docker's interface takes to create a container. The keys above come before what is in it.
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

#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerLimits {
    /// Bytes of memory.
    #[serde(deserialize_with = "memory_limit")]
    pub memory: Option<u64>,
    /// Processors: 0.5 is half the time of one.
    pub cpus: Option<f64>,
    /// Processes and threads.
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
    pub fn own_image(&self) -> Option<&str> {
        let of_config = self.config.as_ref().and_then(|config| config.get("Image")).and_then(Value::as_str);
        [Some(self.image.as_str()), of_config].into_iter().flatten().find(|image| !image.is_empty())
    }

    /// Where the private folder is in the container.
    pub fn folder(&self) -> &str {
        match self.workdir.0.trim_end_matches('/') {
            "" => WORKDIR,
            folder => folder,
        }
    }

    pub fn check(&self) -> Result<(), Wrong> {
        if self.own_image().is_none() && !self.config_from_params {
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
        check_variables("env", &self.env)
    }

    pub fn told(&self) -> Value {
        let pull = serde_json::to_value(self.pull).unwrap_or(Value::Null);
        told(self, [("workdir", self.workdir.0.clone().into()), ("pull", pull)])
    }
}

/// How long a web service may be silent unless its manifest says otherwise, in seconds: 12 hours.
const TIMEOUT: u64 = 43_200;

/// The longest time that can be asked for, in seconds: a year.
const LONGEST_TIMEOUT: u64 = 365 * 86_400;

/// How often a connection is tried again unless the manifest says otherwise.
const CONNECT_RETRIES: u32 = 5;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Where it is asked; when unset the task's parameter `url`, if the node allows that address.
    pub url: Option<String>,
    /// What it is asked with besides.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long it may be silent, in seconds.
    #[serde(skip_serializing_if = "is_usual_timeout")]
    pub timeout: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub callback_auth: CallbackAuth,
    /// How often a connection that cannot be made is tried again.
    #[serde(skip_serializing_if = "is_usual_number_of_retries")]
    pub connect_retries: u32,
}

/// What a web service shows when it calls back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallbackAuth {
    /// The token of the task, in a header.
    #[default]
    Token,
    /// Nothing but the addresses that it was told, which have a secret in them. It is heard on private networks only.
    None,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            url: None,
            headers: BTreeMap::new(),
            timeout: TIMEOUT,
            callback_auth: CallbackAuth::default(),
            connect_retries: CONNECT_RETRIES,
        }
    }
}

fn is_usual_timeout(timeout: &u64) -> bool {
    *timeout == TIMEOUT
}

fn is_usual_number_of_retries(retries: &u32) -> bool {
    *retries == CONNECT_RETRIES
}

impl Http {
    /// Whether the service shows no token when it calls back: its addresses are all that keeps others out.
    pub fn shows_no_token(&self) -> bool {
        self.callback_auth == CallbackAuth::None
    }

    pub fn check(&self) -> Result<(), Wrong> {
        if let Some(url) = self.url.as_deref().filter(|url| !is_address(url)) {
            return Err(("url", format!("expected an address with http:// or https://, got {url:?}")));
        }
        if !(1..=LONGEST_TIMEOUT).contains(&self.timeout) {
            return Err((
                "timeout",
                format!("expected seconds from 1 to {LONGEST_TIMEOUT}, got {}", self.timeout),
            ));
        }
        let is_wrong = |(name, value): &(&String, &String)| {
            name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
                || value.contains(['\r', '\n', '\0'])
        };
        match self.headers.iter().find(is_wrong) {
            Some((name, _)) => Err(("headers", format!("{name:?} cannot be a header, or its value"))),
            None => Ok(()),
        }
    }

    pub fn told(&self) -> Value {
        let defaults =
            [("timeout", Value::from(self.timeout)), ("connect_retries", Value::from(self.connect_retries))];
        told(self, defaults)
    }
}

/// Where in what is given as `pod` the containers may be: it is a pod, the specification of one, or a template of either.
const CONTAINERS: [&str; 4] =
    ["/spec/containers", "/containers", "/template/spec/containers", "/spec/template/spec/containers"];

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// The image; empty where `pod` has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// In place of the image's entry point.
    pub command: Option<Vec<String>>,
    /// In place of the image's arguments.
    pub args: Option<Vec<String>>,
    /// Further variables. `{{secret:NAME}}` in a value stands for a named secret of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// As the node is configured when unset.
    pub namespace: Option<String>,
    /// What is merged over the pod that is made.
    pub pod: Option<Map<String, Value>>,
    /// The secret of the cluster with which images are fetched.
    pub image_pull_secret: Option<String>,
    pub service_account: Option<String>,
    /// Requests and limits of the container, as Kubernetes has them.
    pub resources: Option<Map<String, Value>>,
    /// After so many seconds the cluster removes a job that has ended and was not removed by us.
    pub ttl: Option<u32>,
}

impl Kubernetes {
    pub fn check(&self) -> Result<(), Wrong> {
        if self.image.is_empty() && !self.pod.as_ref().is_some_and(has_image) {
            return Err(("image", "must be given, or pod must have one".to_owned()));
        }
        check_variables("env", &self.env)
    }

    pub fn told(&self) -> Value {
        told(self, [])
    }
}

fn has_image(pod: &Map<String, Value>) -> bool {
    let pod = Value::Object(pod.clone());
    let containers = CONTAINERS.iter().filter_map(|path| pod.pointer(path)).filter_map(Value::as_array);
    containers.flatten().any(|container| container["image"].as_str().is_some_and(|image| !image.is_empty()))
}

/// The key `engines.container` of the configuration: how containers are run.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerEngine {
    #[serde(skip_serializing)]
    pub enabled: OnByDefault,
    /// The path or the address of the container engine's socket; looked for when unset.
    pub socket: Option<String>,
    /// Networks of the container engine, by name, that plugins of the database may have besides [`Self::HARMLESS`].
    #[serde(skip_serializing)]
    pub networks: Vec<String>,
}

impl ContainerEngine {
    /// Networks that lead to nothing of the node itself: none, and the engine's usual one by its names.
    pub const HARMLESS: [&str; 3] = ["none", "bridge", "default"];

    /// Whether a plugin that the database defines may have this network here.
    pub fn lends(&self, network: &str) -> bool {
        Self::HARMLESS.contains(&network) || self.networks.iter().any(|known| known == network)
    }
}

/// The key `engines.http`: how web services are asked.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpEngine {
    #[serde(skip_serializing)]
    pub enabled: OnByDefault,
    /// The address of the web server that they call back.
    #[serde(deserialize_with = "address")]
    pub callback_url: Option<String>,
    /// The hosts that may be asked; when unset those that plugins name, and none that tasks name.
    pub allow: Option<Vec<String>>,
}

/// The key `engines.kubernetes`: how Kubernetes is used.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubernetesEngine {
    #[serde(skip_serializing)]
    pub enabled: OnByDefault,
    /// How the cluster is reached; relative to the configuration. Looked for when unset.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of tasks whose plugin and tenant have none.
    pub namespace: Option<String>,
    pub tenant_namespaces: Option<TenantNamespaces>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected an object of tenants and namespaces, or text with {tenant}")]
pub enum TenantNamespaces {
    /// By the tenant's name, which stands in the place of `{tenant}`.
    Named(String),
    Each(BTreeMap<String, String>),
}
