//! What the manifest of the plugin and the configuration of the node say, checked when they were read: keys that are not
//! known here are not looked at.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The section `kubernetes` of a manifest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The image. Empty: `pod` has it.
    pub image: String,
    /// In place of the image's entry point.
    pub command: Option<Vec<String>>,
    /// In place of the image's arguments.
    pub args: Option<Vec<String>>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
    pub namespace: Option<String>,
    /// What is merged over the pod that is made.
    pub pod: Option<Map<String, Value>>,
    /// The secret of the cluster with which images are fetched.
    pub image_pull_secret: Option<String>,
    /// The service account of the pod.
    pub service_account: Option<String>,
    /// Requests and limits of the container.
    pub resources: Option<Map<String, Value>>,
    /// After so many seconds the cluster removes a job that has ended and is still there.
    pub ttl: Option<u32>,
}

/// The key `engines.kubernetes` of the configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EngineConfig {
    /// How the cluster is reached. Looked for when unset.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of tasks whose plugin and tenant have none.
    pub namespace: Option<String>,
    pub tenant_namespaces: Option<TenantNamespaces>,
}

/// Which namespace a tenant has.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum TenantNamespaces {
    /// By the tenant's name, which stands in the place of `{tenant}`.
    Named(String),
    /// Each its own.
    Each(BTreeMap<String, String>),
}
