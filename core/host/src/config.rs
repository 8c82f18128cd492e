//! The configuration file that all processes share.
//!
//! It is "relaxed" JSON: `#` starts a comment, lists and objects may end in a comma. Files written for Perl
//! Disbatch are accepted unchanged. Keys that nobody knows are collected for a warning; wrong values are
//! refused with the path of the key.

/// Reads a type from what the file has. The block says what was expected, if it is something else.
macro_rules! read_from {
    ($name:ident, $given:ident: $of:ty => $read:block) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                fn read($given: $of) -> Result<$name, String> $read
                read(<$of as serde::Deserialize>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

mod access;
mod engines;
mod isolation;
mod reports;
mod sections;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use disbatch_documents::{Labels, QueueId};
use disbatch_values::json::to_strict;
use serde::Deserialize;
use serde_json::Value;

pub use access::{Access, HostNames, Inbox, Network, Producer, Proxy, SessionLimits, Tls};
pub use disbatch_values::config::{Flag, OnByDefault};
pub use disbatch_values::sections::ContainerEngine;
pub use engines::{AllowedPlugins, Engines, PerlEngine, PluginEntry};
pub use isolation::{Limits, NamedSecret, PluginEnvironment, RunAs, SecretEnvironment, Secrets};
pub use reports::{Audit, Level, Log, Metrics, Notifications, TraceUrl, Traces};
pub use sections::{Attributes, Auth, Balance, Chore, Gfs, Hook, Indexes, Role, Ssl};

/// Where a process looks when `--config` is not given.
pub const DEFAULT_PATH: &str = "/etc/disbatch/config.json";

const DEFAULT_LEASE: Duration = Duration::from_secs(30);

const DEFAULT_RUNNER_IDLE: Duration = Duration::from_secs(60);

/// The configuration as read and checked. That `mongohost` and `database` are there is seen to before it is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The schema by which an editor checks the file; accepted and not used.
    #[serde(rename = "$schema")]
    pub schema: Option<serde_json::Value>,
    /// `host:port`, several of them with commas, or a `mongodb://` or `mongodb+srv://` URI.
    pub mongohost: String,
    pub database: String,
    #[serde(deserialize_with = "sections::or_default")]
    pub attributes: Attributes,
    #[serde(deserialize_with = "sections::or_default")]
    pub auth: Auth,
    /// The plugins that a queue may be created with; every plugin that is found when unset.
    pub plugins: Option<AllowedPlugins>,
    /// Folders with `plugin.json` manifests, searched before the shipped plugins.
    pub plugin_dirs: Vec<PathBuf>,
    pub engines: Engines,
    /// Where private folders of tasks are made. See [`Config::temp_folder`].
    pub temp_dir: Option<PathBuf>,
    /// The mode of that in Disbatch 4.4; accepted and not used, since private folders are always open to their user alone.
    pub temp_dir_mode: Option<serde_json::Value>,
    /// The program with which Disbatch 4.4 runs plugins; accepted and not used.
    pub plugin_runner: Option<serde_json::Value>,
    /// What Disbatch 4.4 runs before a plugin; accepted and not used.
    pub pre_hook: Option<serde_json::Value>,
    /// Whether `/monitoring` looks.
    pub monitoring: OnByDefault,
    pub metrics: Metrics,
    pub notifications: Notifications,
    pub traces: Traces,
    #[serde(deserialize_with = "sections::or_default")]
    pub balance: Balance,
    pub janitor: Chore,
    pub inbox: Inbox,
    /// Whether schedules fire from this node.
    pub schedules: OnByDefault,
    pub auditor: Chore,
    pub audit: Audit,
    pub secrets: Secrets,
    /// Folder of named secrets, a file each. See [`Config::secrets_folder`].
    pub secrets_dir: Option<PathBuf>,
    /// Which of them plugins get as variables.
    pub secret_environment: SecretEnvironment,
    /// Whether plugins find secure parameters in a variable, too; as their manifests say when unset.
    pub secure_params_in_environment: Option<Flag>,
    /// Deprecated routes to serve, by the name of the Perl package that had them.
    #[serde(deserialize_with = "sections::names")]
    pub web_extensions: Vec<String>,
    /// Which variables of their runner plugins get besides those that they need.
    pub plugin_environment: PluginEnvironment,
    /// The user whom plugins run as; the runner's own when unset.
    pub run_as: Option<RunAs>,
    pub limits: Limits,
    /// Where control groups for tasks are made; there are none when unset.
    #[serde(deserialize_with = "isolation::cgroup")]
    pub cgroup: Option<PathBuf>,
    /// Whether plugins, and what they start, can get no privileges that they do not have, through `sudo` for instance.
    pub no_new_privs: OnByDefault,
    /// The program to run a task with instead of `dtr`.
    pub task_runner: Option<PathBuf>,
    /// Where output is stored. See [`Config::den_gfs`].
    pub gfs: Option<Gfs>,
    /// How long a runner or a node may be silent. See [`Config::lease`].
    #[serde(deserialize_with = "sections::within::<_, 1, 86_400>")]
    pub lease: Option<Duration>,
    /// How long a runner without a task is kept. See [`Config::runner_idle`].
    #[serde(deserialize_with = "sections::within::<_, 0, 86_400>")]
    pub runner_idle: Option<Duration>,
    pub quiet: Flag,
    /// Passed on to the runner as `--testing`.
    pub testing: Flag,
    pub access: Access,
    /// With which files the web server speaks TLS; plain HTTP when unset.
    pub tls: Option<Tls>,
    pub hosts: Option<HostNames>,
    /// Folder of static files; the built-in pages need none.
    pub web_root: Option<PathBuf>,
    /// Folder of the site of the documentation; looked for beside the program when unset.
    pub docs_root: Option<PathBuf>,
    /// Folder of Perl's templates; accepted and not used.
    pub views_dir: Option<PathBuf>,
    /// Perl's logging configuration; its level and file are used.
    #[serde(rename = "log4perl", deserialize_with = "sections::or_default")]
    pub log: Log,
    /// The only queues that this DEN serves.
    #[serde(deserialize_with = "sections::queue_ids")]
    pub activequeues: Option<Vec<QueueId>>,
    /// Queues that this DEN does not serve, unless `activequeues` is set.
    #[serde(deserialize_with = "sections::queue_ids")]
    pub ignorequeues: Option<Vec<QueueId>>,
    pub labels: Labels,
    /// Where its host is to be reached, in place of what its interfaces tell.
    pub addresses: Option<Vec<String>>,
    pub on_dead_node: Option<Hook>,
    /// How many tasks this DEN starts in a second at most.
    #[serde(deserialize_with = "sections::increase")]
    pub node_increase: Option<u64>,
    /// How many of each queue it starts in a second at most.
    #[serde(deserialize_with = "sections::increase")]
    pub queue_increase: Option<u64>,
    pub indexes: Indexes,
    /// Keys in the file that nothing reads, by path.
    #[serde(skip)]
    pub unknown_keys: Vec<String>,
    /// The file, absolute, as it is passed on to runners.
    #[serde(skip)]
    pub path: PathBuf,
    #[serde(skip)]
    has_passwords: bool,
    #[serde(skip)]
    is_public: bool,
}

/// Why a configuration cannot be used. One line, with the file and what is wrong in it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read configuration {path}: {why}", path = path.display())]
    Read { path: PathBuf, why: std::io::Error },
    /// It is not JSON, even relaxed.
    #[error("cannot parse configuration {path}: {why}", path = path.display())]
    Parse { path: PathBuf, why: serde_json::Error },
    #[error("invalid configuration {path}: {key}: {message}", path = path.display())]
    Invalid {
        path: PathBuf,
        /// The path of the key, `balance.enabled` for instance.
        key: String,
        message: String,
    },
    /// Whether it can be used cannot be found out now, as somebody who knows does not answer.
    #[error("cannot check configuration {path}: {key}: {message}", path = path.display())]
    Unknown { path: PathBuf, key: String, message: String },
}

impl ConfigError {
    pub(crate) fn invalid(path: &Path, key: &str, message: &str) -> Self {
        Self::Invalid { path: path.to_owned(), key: key.to_owned(), message: message.to_owned() }
    }
}

impl Config {
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read_error = |why| ConfigError::Read { path: path.to_owned(), why };
        let text = std::fs::read_to_string(path).map_err(read_error)?;
        let absolute = std::path::absolute(path).map_err(read_error)?;
        let config = Self::parse(&text, &absolute)?;
        Ok(Self { is_public: is_public(&absolute), ..config })
    }

    /// Checks the text of a configuration file; `path` is for messages and for the runners.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let parse_error = |why| ConfigError::Parse { path: path.to_owned(), why };
        let strict = to_strict(text);
        let value: serde_json::Value = serde_json::from_str(&strict).map_err(parse_error)?;
        let invalid = |key: &str, message: &str| ConfigError::invalid(path, key, message);
        let missing: Vec<&str> = ["mongohost", "database"]
            .into_iter()
            .filter(|key| value.get(key).is_none_or(|v| v.is_null() || v == ""))
            .collect();
        if !value.is_object() {
            return Err(invalid(".", "expected an object with the keys of the configuration"));
        }
        if !missing.is_empty() {
            return Err(invalid(&missing.join(" and "), "must be defined"));
        }
        let has_passwords = has_passwords(&value);
        let mut unknown_keys = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
        // A section that may be null has a `?` of its own in the path.
        let mut note_unknown =
            |key: serde_ignored::Path<'_>| unknown_keys.push(key.to_string().replace(".?.", "."));
        let parsed: Result<Self, _> =
            Self::deserialize(serde_ignored::Deserializer::new(deserializer, &mut note_unknown));
        let mut config = parsed.map_err(|error| invalid(&track.path().to_string(), &error.to_string()))?;
        if config.secrets_dir.is_none() && !config.secret_environment.is_empty() {
            return Err(invalid("secrets_dir", "must be defined for secret_environment"));
        }
        if let Some(plugins) = &mut config.plugins {
            unknown_keys.append(&mut plugins.unknown_keys);
        }
        if let Some(ssl) = &mut config.attributes.ssl {
            unknown_keys.append(&mut ssl.unknown_keys);
        }
        config.engines = std::mem::take(&mut config.engines).within(path.parent().unwrap_or(Path::new(".")));
        config.unknown_keys = unknown_keys;
        config.path = path.to_owned();
        config.has_passwords = has_passwords;
        Ok(config)
    }

    /// How long a task is its runner's without a sign of life, and a node alive: 30 s unless configured.
    pub fn lease(&self) -> Duration {
        self.lease.unwrap_or(DEFAULT_LEASE)
    }

    /// How long a DEN keeps a runner that has no task: a minute unless configured.
    pub fn runner_idle(&self) -> Duration {
        self.runner_idle.unwrap_or(DEFAULT_RUNNER_IDLE)
    }

    /// Where a DEN tells its runners to store output: as configured, `auto` unless set.
    pub fn den_gfs(&self) -> Gfs {
        self.gfs.unwrap_or(Gfs::Auto)
    }

    /// What relative paths in the configuration are seen from.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// The folder of named secrets. A relative path is one from the folder of the configuration.
    pub fn secrets_folder(&self) -> Option<PathBuf> {
        self.secrets_dir.as_ref().map(|secrets| self.folder().join(secrets))
    }

    /// The folder in which private folders of tasks are made: as configured, where a relative path is one from the folder of
    /// the configuration, else the system's for temporary files.
    pub fn temp_folder(&self) -> PathBuf {
        self.temp_dir.as_ref().map_or_else(std::env::temp_dir, |temp| self.folder().join(temp))
    }

    /// The files of `tls`. Relative paths are seen from the folder of the configuration.
    pub fn tls_files(&self) -> Option<Tls> {
        self.tls.as_ref().map(|tls| tls.within(self.folder()))
    }

    /// What is wrong where every user of this host can read the passwords in the file.
    pub fn exposure(&self) -> Option<String> {
        let path = self.path.display();
        (self.has_passwords && self.is_public)
            .then(|| format!("every user of this host can read the passwords in {path}: chmod o-rwx {path}"))
    }

    pub fn log_exposure(&self) {
        if let Some(exposure) = self.exposure() {
            tracing::warn!("{exposure}");
        }
    }

    /// What is in the file and is not used, and [`exposure`](Self::exposure). One line each.
    pub fn concerns(&self) -> Vec<String> {
        let path = self.path.display();
        let unknown = self.unknown_keys.iter();
        let unknown = unknown.map(|key| format!("unknown configuration key {key} of {path} is not used"));
        let has_hook = self.pre_hook.as_ref().is_some_and(|hook| !hook.is_null());
        let hook = has_hook.then(|| format!("pre_hook is not run, which {path} has"));
        unknown.chain(hook).chain(self.exposure()).collect()
    }

    pub fn log_concerns(&self) {
        for concern in self.concerns() {
            tracing::warn!("{concern}");
        }
    }
}

const EVERYBODY_READS: u32 = 0o004;

/// Whether every user of this host can read the file, once they are in its folder.
fn is_public(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & EVERYBODY_READS != 0)
}

/// Whether a configuration has a password of a MongoDB user. Keys of secure parameters are in a file of their own.
fn has_passwords(config: &Value) -> bool {
    let is_set =
        |value: &Value| value.is_number() || value.as_str().is_some_and(|password| !password.is_empty());
    let auth = config["auth"].as_object().is_some_and(|auth| auth.values().any(is_set));
    auth || config["mongohost"].as_str().is_some_and(has_password)
}

/// Whether a URI has a password: `mongodb://user:password@host`.
fn has_password(mongohost: &str) -> bool {
    let rest = mongohost.split_once("://").map_or(mongohost, |(_, rest)| rest);
    // What comes after the hosts may have an `@`, too.
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests;
