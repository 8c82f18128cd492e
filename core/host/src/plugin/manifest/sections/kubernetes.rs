//! The key `kubernetes` of a manifest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Wrong;

/// Where in what is given as `pod` the containers may be: it is a pod, the specification of one, or a template of either.
const CONTAINERS: [&str; 4] =
    ["/spec/containers", "/containers", "/template/spec/containers", "/spec/template/spec/containers"];

/// A job of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// The image; empty where `pod` has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// In place of the image's entry point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// In place of the image's arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Further variables. `{{secret:NAME}}` in a value stands for a named secret of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The namespace; as the node is configured when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What is merged over the pod that is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Map<String, Value>>,
    /// The secret of the cluster with which images are fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    /// The service account of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Requests and limits of the container, as Kubernetes has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Map<String, Value>>,
    /// After so many seconds the cluster removes a job that has ended and was not removed by us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
}

impl Kubernetes {
    pub(in super::super) fn check(&self) -> Result<(), Wrong> {
        if self.image.is_empty() && !self.pod.as_ref().is_some_and(has_image) {
            return Err(("image", "must be given, or pod must have one".to_owned()));
        }
        super::check_variables("env", &self.env)
    }

    pub(in super::super) fn told(&self) -> Value {
        super::told(self, [])
    }
}

fn has_image(pod: &Map<String, Value>) -> bool {
    let pod = Value::Object(pod.clone());
    let containers = CONTAINERS.iter().filter_map(|path| pod.pointer(path)).filter_map(Value::as_array);
    containers.flatten().any(|container| container["image"].as_str().is_some_and(|image| !image.is_empty()))
}
