//! The sections of the configuration file, each liberal in the ways that Perl is.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use disbatch_documents::QueueId;
use disbatch_values::config::{Flag, OnByDefault};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::isolation;

/// A section, where null is like not given, as it is to Perl.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A time in seconds within these bounds.
fn seconds<E: Error>(value: &Value, bounds: RangeInclusive<f64>) -> Result<Duration, E> {
    let seconds = value.as_f64().filter(|seconds| bounds.contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        E::custom(format!("expected a number of seconds from {least} to {most}, got {value}"))
    })
}

/// Such a time, or null.
pub(super) fn within<'de, D: Deserializer<'de>, const LEAST: u32, const MOST: u32>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let bounds = f64::from(LEAST)..=f64::from(MOST);
    Option::<Value>::deserialize(deserializer)?.map(|value| seconds(&value, bounds)).transpose()
}

/// A pause between rounds.
fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    seconds(&Value::deserialize(deserializer)?, 0.1..=86_400.0).map(Some)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The program: a path, or a name that is found on `PATH`.
    pub program: String,
    pub arguments: Vec<String>,
}

read_from!(Hook, value: Value => {
    match Vec::<String>::deserialize(&value).as_deref() {
        Ok([program, arguments @ ..]) if !program.is_empty() => {
            Ok(Hook { program: program.clone(), arguments: arguments.to_vec() })
        }
        _ => Err(format!("expected a list of a program and its arguments, got {value}")),
    }
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gfs {
    /// In the task up to 15 MiB, else in GridFS.
    Auto,
    Always,
    Never,
}

impl Gfs {
    /// The value of a runner's `--gfs`, which may stand alone.
    pub const fn as_argument(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "1",
            Self::Never => "0",
        }
    }
}

impl std::str::FromStr for Gfs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "" | "1" | "true" => Ok(Self::Always),
            "0" | "false" => Ok(Self::Never),
            other => Err(format!("expected \"auto\", true or false, got {other:?}")),
        }
    }
}

read_from!(Gfs, value: Value => {
    if value == "auto" {
        return Ok(Gfs::Auto);
    }
    let always = Flag::from_value(&value).map(|always| if always { Gfs::Always } else { Gfs::Never });
    always.ok_or_else(|| format!("expected \"auto\", true or false, got {value}"))
});

/// Options of the connection to MongoDB, named as the Perl driver names them.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Attributes {
    /// TLS. Absent or 0: none.
    #[serde(default, deserialize_with = "ssl")]
    pub ssl: Option<Ssl>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssl {
    /// Certificates to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether the server's certificate is checked at all.
    pub verify: bool,
    /// What nothing reads of it, by path.
    pub(super) unknown_keys: Vec<String>,
}

#[derive(Deserialize)]
struct SslOptions {
    #[serde(rename = "SSL_ca_file")]
    ca_file: Option<PathBuf>,
    #[serde(rename = "SSL_verify_mode", default, deserialize_with = "isolation::count::<_, 0>")]
    verify_mode: Option<u64>,
}

fn ssl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ssl>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let mut unknown_keys = Vec::new();
    if value.is_object() {
        let note_unknown = |key: serde_ignored::Path<'_>| unknown_keys.push(format!("attributes.ssl.{key}"));
        let options: SslOptions =
            serde_ignored::deserialize(value, note_unknown).map_err(D::Error::custom)?;
        let verify = options.verify_mode != Some(0);
        return Ok(Some(Ssl { ca_file: options.ca_file, verify, unknown_keys }));
    }
    match Flag::from_value(&value) {
        Some(true) => Ok(Some(Ssl { ca_file: None, verify: true, unknown_keys })),
        Some(false) => Ok(None),
        None => Err(D::Error::custom(format!(
            "expected 1, 0, or an object with SSL_ca_file or SSL_verify_mode, got {value}"
        ))),
    }
}

disbatch_values::words! {
    /// Which user a process is to MongoDB: the user's name, which is also the key of its password. Every process has one with only the
    /// privileges it needs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Role {
        Disbatchd = "disbatchd",
        DisbatchWeb = "disbatch_web",
        TaskRunner = "task_runner",
        QueueBalance = "queuebalance",
        Plugin = "plugin",
    }
}

/// Passwords of the MongoDB users. No authentication for a role without one.
#[derive(Clone, Default, Deserialize)]
pub struct Auth {
    disbatchd: Option<Password>,
    disbatch_web: Option<Password>,
    task_runner: Option<Password>,
    queuebalance: Option<Password>,
    plugin: Option<Password>,
}

#[derive(Clone)]
struct Password(String);

read_from!(Password, value: Value => {
    match value {
        Value::String(text) => Ok(Password(text)),
        // To Perl a number is its digits.
        Value::Number(number) if !number.is_f64() => Ok(Password(number.to_string())),
        _ => Err("expected text, or a whole number".to_owned()), // It is not to be told.
    }
});

impl Auth {
    pub fn password(&self, role: Role) -> Option<&str> {
        match role {
            Role::Disbatchd => &self.disbatchd,
            Role::DisbatchWeb => &self.disbatch_web,
            Role::TaskRunner => &self.task_runner,
            Role::QueueBalance => &self.queuebalance,
            Role::Plugin => &self.plugin,
        }
        .as_ref()
        .map(|Password(text)| text.as_str())
    }
}

disbatch_values::not_shown!(Auth, _this => "Auth(passwords not shown)");

/// Names, of which something may be said besides.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of names or an object with names as keys")]
pub(super) enum Names {
    List(Vec<String>),
    Keys(Map<String, Value>),
}

pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Option::<Names>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Names::List(names)) => names,
        Some(Names::Keys(map)) => map.into_iter().map(|(name, _)| name).collect(),
    })
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Balance {
    pub enabled: Flag,
    pub log: OnByDefault,
    /// Whether it logs its arithmetic.
    pub verbose: Flag,
    /// Whether it only says what it would do.
    pub pretend: Flag,
}

/// What a DEN does now and then for all: as janitor it archives and deletes ended tasks by the policy of their queues, as auditor it compares
/// counters with tasks.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Chore {
    pub enabled: OnByDefault,
    /// How often it looks; as an auditor, after which time all counters are audited again.
    #[serde(deserialize_with = "every")]
    pub every: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct TextId(#[serde(deserialize_with = "id")] QueueId);

fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<QueueId, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Ids of queues. An empty list is like no list, as it is to Perl Disbatch.
pub(super) fn queue_ids<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<QueueId>>, D::Error> {
    let ids = Option::<Vec<TextId>>::deserialize(deserializer)?;
    let ids = ids.filter(|ids| !ids.is_empty());
    Ok(ids.map(|ids| ids.into_iter().map(|id| id.0).collect()))
}

/// How many tasks may be started in a second.
pub(super) fn increase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(value) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    let tasks = value.as_u64().filter(|tasks| *tasks > 0).map(Some);
    tasks.ok_or_else(|| D::Error::custom(format!("expected a whole number from 1 on, got {value}")))
}

/// Which of its indexes a DEN creates. Those that are there stay, whatever it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Indexes {
    /// Those of Perl Disbatch, all of them, and those of this project.
    #[default]
    Exact,
    /// The same without those that only programs of Perl Disbatch need.
    Lean,
}

read_from!(Indexes, value: Value => {
    match &value {
        Value::Null => Ok(Indexes::default()),
        Value::String(word) if word == "exact" => Ok(Indexes::Exact),
        Value::String(word) if word == "lean" => Ok(Indexes::Lean),
        other => Err(format!("expected \"exact\" or \"lean\", got {other}")),
    }
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parse;

    #[test]
    fn an_increase_is_a_whole_number_from_one_on() {
        let parse = |key: &str, value: &str| parse(&format!(r#""{key}":{value}"#));
        for key in ["node_increase", "queue_increase"] {
            let config = parse(key, "5").unwrap();
            let (node, queue) = (config.node_increase, config.queue_increase);
            assert_eq!(node.or(queue), Some(5));
            assert!(node.is_none() || queue.is_none());
            assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
            for wrong in ["0", "-1", "1.5", "\"5\"", "true", "[]"] {
                let error = parse(key, wrong).unwrap_err().to_string();
                let end = format!("{key}: expected a whole number from 1 on, got {wrong}");
                assert!(error.ends_with(&end), "{error}");
            }
            assert!(parse(key, "null").unwrap().node_increase.is_none(), "null is like not given");
        }
    }

    #[test]
    fn an_empty_list_of_queues_is_like_no_list() {
        let config = parse(r#""activequeues":[],"ignorequeues":["6b0003bb686c8275d70dc2f1"]"#).unwrap();
        assert_eq!((config.activequeues, config.ignorequeues.map(|ids| ids.len())), (None, Some(1)));
    }

    #[test]
    fn indexes_are_exact_unless_they_are_lean() {
        for (text, indexes) in [
            (r#""indexes":"lean""#, Indexes::Lean),
            (r#""indexes":"exact""#, Indexes::Exact),
            (r#""indexes":null"#, Indexes::Exact),
            (r#""quiet":0"#, Indexes::Exact),
        ] {
            let config = parse(text).unwrap();
            assert_eq!(config.indexes, indexes, "{text}");
            assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
        }
        for wrong in ["\"Lean\"", "true", "[\"lean\"]", "\"\""] {
            let error = parse(&format!("\"indexes\":{wrong}")).unwrap_err().to_string();
            let end = format!("indexes: expected \"exact\" or \"lean\", got {wrong}");
            assert!(error.ends_with(&end), "{error}");
        }
    }
}
