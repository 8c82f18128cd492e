//! What a manifest says to its engine: a section for each that needs more than a command.

mod container;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::plugin::perl::file_of;

pub use container::{Container, ContainerLimits, Mount, Pull};

/// What is wrong with a section: the key in it, and why.
pub(super) type Wrong = (&'static str, String);

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

/// The key `perl` of a manifest: a Perl module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Perl {
    /// The module; that of the plugin's name when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Folders in which modules are looked for first; relative to the folder of the manifest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lib: Vec<String>,
    /// The interpreter; that of the node when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perl: Option<String>,
}

impl Perl {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        match &self.class {
            Some(class) if file_of(class).is_none() => {
                Err(("class", format!("{class:?} is not the name of a Perl module")))
            }
            _ if self.lib.iter().any(String::is_empty) => {
                Err(("lib", "a folder must not be empty".to_owned()))
            }
            _ if self.perl.as_deref() == Some("") => Err(("perl", "must name a program".to_owned())),
            _ => Ok(()),
        }
    }
}

/// The key `program` of a manifest: a program of Disbatch 4.4.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Program {
    #[serde(rename = "type", skip_serializing_if = "super::is_default")]
    pub kind: ProgramType,
    /// The program; the one that has the plugin's name when neither this nor `command` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Arguments before those that it is given for each task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// What a program of Disbatch 4.4 is given, and where it leaves its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramType {
    /// The task in a file and a configuration; its answer is a file.
    #[default]
    Default,
    /// The same without a configuration.
    Nomongo,
    /// The task's id and a configuration; its answer is a document in the collection `results`.
    Mongo,
    /// The task's id and a configuration: it is a runner itself, and ends the task by itself.
    Handoff,
}

impl Program {
    /// Whether a manifest may say so. The configuration says what it likes.
    pub(super) fn check(&self, has_command: bool) -> Result<(), Wrong> {
        if self.kind == ProgramType::Handoff {
            let why =
                "a DEN starts such a program as its own user: only plugins of the configuration may name it";
            return Err(("type", format!("handoff: {why}")));
        }
        if self.path.as_deref() == Some("") {
            return Err(("path", "must name a program".to_owned()));
        }
        if has_command && (self.path.is_some() || !self.args.is_empty()) {
            return Err(("path", "is not to be set beside command, nor is args".to_owned()));
        }
        Ok(())
    }
}

/// How long a web service may be silent unless its manifest says otherwise, in seconds: 12 hours.
const TIMEOUT: u64 = 43_200;

/// The longest time that can be asked for, in seconds: a year.
const LONGEST_TIMEOUT: u64 = 365 * 86_400;

/// How often a connection is tried again unless the manifest says otherwise.
const CONNECT_RETRIES: u32 = 5;

/// The key `http` of a manifest: a web service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Where it is asked; when unset the task's parameter `url`, if the node allows that address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What it is asked with besides.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long it may be silent, in seconds.
    #[serde(skip_serializing_if = "is_usual_timeout")]
    pub timeout: u64,
    #[serde(skip_serializing_if = "super::is_default")]
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

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let is_address = |url: &str| url.starts_with("http://") || url.starts_with("https://");
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

    pub(super) fn told(&self) -> Value {
        let defaults =
            [("timeout", Value::from(self.timeout)), ("connect_retries", Value::from(self.connect_retries))];
        told(self, defaults)
    }
}

/// Where in what is given as `pod` the containers may be: it is a pod, the specification of one, or a template of either.
const CONTAINERS: [&str; 4] =
    ["/spec/containers", "/containers", "/template/spec/containers", "/spec/template/spec/containers"];

/// The key `kubernetes` of a manifest: a job of Kubernetes.
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
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.image.is_empty() && !self.pod.as_ref().is_some_and(has_image) {
            return Err(("image", "must be given, or pod must have one".to_owned()));
        }
        check_variables("env", &self.env)
    }

    pub(super) fn told(&self) -> Value {
        told(self, [])
    }
}

fn has_image(pod: &Map<String, Value>) -> bool {
    let pod = Value::Object(pod.clone());
    let containers = CONTAINERS.iter().filter_map(|path| pod.pointer(path)).filter_map(Value::as_array);
    containers.flatten().any(|container| container["image"].as_str().is_some_and(|image| !image.is_empty()))
}
