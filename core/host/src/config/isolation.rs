//! What plugins get from their node, and what they are kept from; where the keys of secure parameters are, and which other secrets of a node
//! its plugins get.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use disbatch_documents::PluginName;
use disbatch_values::config::{self, MOST_BYTES, memory_limit};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Variables that a plugin gets from its runner in any case: what programs need to find their way. A `*` at the end
/// matches any rest.
const ALWAYS: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TZ",
    "TMPDIR",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "PERL5LIB",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];

/// What tells Disbatch, or the system's manager of services, secrets and ways: it is passed on only if it is named.
const OURS: [&str; 4] = ["DISBATCH_*", "NOTIFY_SOCKET", "WATCHDOG_*", "CREDENTIALS_DIRECTORY"];

/// The fewest descriptors: four that it is given, and some for the libraries that it loads.
const FEWEST_FILES: u64 = 8;

/// Which variables of its runner a plugin gets besides those that every plugin gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PluginEnvironment(Vec<Pattern>);

impl PluginEnvironment {
    pub fn passes(&self, name: &OsStr) -> bool {
        let is_ours = OURS.iter().any(|ours| matches(ours, name.as_encoded_bytes()));
        let configured = self.0.iter().map(|pattern| pattern.0.as_str());
        // What is secret is not meant by a pattern that it happens to match.
        let configured = configured.filter(|pattern| !is_ours || !pattern.ends_with('*'));
        name != crate::secrets::VARIABLE
            && ALWAYS.into_iter().chain(configured).any(|pattern| matches(pattern, name.as_encoded_bytes()))
    }
}

fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}

/// The name of a variable, perhaps with a `*` at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(String);

read_from!(Pattern, text: String => {
    let name = text.strip_suffix('*').unwrap_or(&text);
    if text.is_empty() || name.contains(['*', '=', '\0']) {
        return Err(format!("expected the name of a variable, which may end in *, got {text:?}"));
    }
    Ok(Pattern(text))
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    pub user: String,
    /// The name of the group in place of the user's own.
    pub group: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    user: String,
    group: Option<String>,
}

read_from!(RunAs, value: Value => {
    let Names { user, group } = match value {
        Value::String(text) => match text.split_once(':') {
            Some((user, group)) => Names { user: user.to_owned(), group: Some(group.to_owned()) },
            None => Names { user: text, group: None },
        },
        Value::Object(_) => Names::deserialize(value).map_err(|error| error.to_string())?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            let expected = "expected \"user\", \"user:group\" or an object with user and group";
            return Err(format!("{expected}, got {value}"));
        }
    };
    if user.is_empty() || group.as_deref() == Some("") {
        return Err("the names of user and group must not be empty".to_owned());
    }
    Ok(RunAs { user, group })
});

/// The most that a plugin may use. `None`: as much as its runner may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory: of all processes of a task where there are control groups, else of address space of each process.
    #[serde(deserialize_with = "memory_limit", skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Seconds of processor time of each process.
    #[serde(deserialize_with = "count::<_, 1>", skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Open descriptors of each process.
    #[serde(deserialize_with = "count::<_, FEWEST_FILES>", skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Processes and threads: of a task where there are control groups, else of the user.
    #[serde(deserialize_with = "count::<_, 1>", skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes of each file that is written.
    #[serde(deserialize_with = "bytes", skip_serializing_if = "Option::is_none")]
    pub file_size: Option<u64>,
    /// Bytes of a core dump. None are written unless this is set.
    #[serde(deserialize_with = "bytes", skip_serializing_if = "Option::is_none")]
    pub core: Option<u64>,
}

impl Limits {
    #[must_use]
    pub fn lower_of(self, other: Self) -> Self {
        let lower = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            memory: lower(self.memory, other.memory),
            cpu_seconds: lower(self.cpu_seconds, other.cpu_seconds),
            open_files: lower(self.open_files, other.open_files),
            processes: lower(self.processes, other.processes),
            file_size: lower(self.file_size, other.file_size),
            core: lower(self.core, other.core),
        }
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    config::bytes(&Value::deserialize(deserializer)?, 0).map_err(D::Error::custom)
}

/// A whole number, or null.
pub(super) fn count<'de, D: Deserializer<'de>, const LEAST: u64>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_null() {
        return Ok(None);
    }
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let expected = || D::Error::custom(format!("expected a whole number, at least {LEAST}, got {value}"));
    number.filter(|number| (LEAST..=MOST_BYTES).contains(number)).map(Some).ok_or_else(expected)
}

/// A folder of control groups (version 2) that the node may write.
pub(super) fn cgroup<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        Some(text) if !Path::new(&text).is_absolute() => {
            Err(D::Error::custom(format!("expected the absolute path of a folder, got {text:?}")))
        }
        path => Ok(path.map(PathBuf::from)),
    }
}

const LONGEST_NAME: usize = 200;

/// Variables that tell of a task begin so. They have no secret.
const OF_TASKS: [&str; 2] = ["DISBATCH_", "JOB_"];

/// Others that tell of a task.
const OF_A_TASK: [&str; 4] = ["RUN_ID", "TENANT_ID", "LAST_SUCCESS_START", "LAST_SUCCESS_FINISH"];

/// The keys of secure parameters, see [`crate::secrets`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Secrets {
    /// A file with a key on each line. A relative path is one from the folder of the configuration.
    pub key_file: Option<PathBuf>,
}

/// Which named secrets plugins find in which variables. A secret is a file of the folder `secrets_dir`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretEnvironment(Vec<NamedSecret>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSecret {
    /// The path of its file, relative to the folder of secrets.
    pub name: String,
    pub variable: String,
    /// The plugins that get it; all of them if none are named.
    pub plugins: Option<Vec<PluginName>>,
}

impl SecretEnvironment {
    pub fn of<'a>(&'a self, plugin: &'a PluginName) -> impl Iterator<Item = &'a NamedSecret> {
        let is_for = move |secret: &&NamedSecret| match &secret.plugins {
            None => true,
            Some(plugins) => plugins.contains(plugin),
        };
        self.0.iter().filter(is_for)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Narrowed {
    variable: String,
    plugins: Vec<PluginName>,
}

read_from!(SecretEnvironment, given: Option<BTreeMap<String, Value>> => {
    let mut secrets: Vec<NamedSecret> = Vec::new();
    for (name, value) in given.unwrap_or_default() {
        let secret = secret(&name, value).map_err(|why| format!("{name:?}: {why}"))?;
        if let Some(other) = secrets.iter().find(|other| other.variable == secret.variable) {
            return Err(format!("{:?} and {name:?} have the same variable", other.name));
        }
        secrets.push(secret);
    }
    Ok(SecretEnvironment(secrets))
});

fn secret(name: &str, value: Value) -> Result<NamedSecret, String> {
    if !is_name(name) {
        return Err("expected a path within the folder of secrets, of letters, digits, _, - and .".to_owned());
    }
    let (variable, plugins) = match value {
        Value::String(variable) => (variable, None),
        Value::Object(_) => {
            let Narrowed { variable, plugins } =
                serde_json::from_value(value).map_err(|error| error.to_string())?;
            (variable, Some(plugins))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(format!("expected a variable, or an object with variable and plugins, got {value}"));
        }
    };
    if !is_variable(&variable) {
        return Err(format!("{variable:?} is no variable that may have a secret"));
    }
    Ok(NamedSecret { name: name.to_owned(), variable, plugins })
}

/// Whether it leads to nothing outside of the folder.
fn is_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_legal);
    name.len() <= LONGEST_NAME && name.split('/').all(is_part)
}

fn is_variable(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_ours = OF_TASKS.iter().any(|start| name.starts_with(start)) || OF_A_TASK.contains(&name);
    begins && !is_ours && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::tests::parse;

    #[test]
    fn nothing_need_be_configured() {
        let config = parse(r#""quiet":0"#).unwrap();
        assert_eq!((config.run_as, config.limits, config.cgroup), (None, Limits::default(), None));
        assert!(config.no_new_privs.0);
        let nothing = r#""run_as":null,"cgroup":null,"no_new_privs":0,"limits":{"memory":null}"#;
        let config = parse(nothing).unwrap();
        assert_eq!((config.run_as, config.limits, config.cgroup), (None, Limits::default(), None));
        assert!(!config.no_new_privs.0);
    }

    #[test]
    fn a_plugin_gets_what_it_needs_and_what_is_named() {
        let passes = |config: &Config, name: &str| config.plugin_environment.passes(OsStr::new(name));
        let none = parse(r#""quiet":0"#).unwrap();
        for name in ["PATH", "HOME", "LC_ALL", "LC_CTYPE", "TZ", "no_proxy", "NO_PROXY", "PYTHONPATH"] {
            assert!(passes(&none, name), "{name}");
        }
        let secrets = ["DISBATCH_ROOT_PASSWORD", "DISBATCH_SECRETS_KEY", "NOTIFY_SOCKET", "AWS_KEY"];
        for name in
            secrets.into_iter().chain(["LC", "PATHS", "path", "", "CREDENTIALS_DIRECTORY", "WATCHDOG_USEC"])
        {
            assert!(!passes(&none, name), "{name}");
        }
        let some = parse(r#""plugin_environment":["AWS_*","LICENSE",]"#).unwrap();
        for (name, expected) in
            [("AWS_KEY", true), ("AWS_", true), ("LICENSE", true), ("LICENSES", false), ("AWS", false)]
        {
            assert_eq!(passes(&some, name), expected, "{name}");
        }
        let all = parse(r#""plugin_environment":["*", "DISBATCH_*"]"#).unwrap();
        assert!(passes(&all, "AWS_KEY") && passes(&all, "ANYTHING"));
        for name in ["DISBATCH_ROOT_PASSWORD", "NOTIFY_SOCKET", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY"] {
            assert!(!passes(&all, name), "{name} is not what a pattern means");
        }
        let named = parse(r#""plugin_environment":["NOTIFY_SOCKET", "DISBATCH_SECRETS_KEY"]"#).unwrap();
        assert!(passes(&named, "NOTIFY_SOCKET") && !passes(&named, "DISBATCH_SECRETS_KEY"));
    }

    #[test]
    fn a_user_is_named_in_three_ways() {
        let run_as = |value: &str| parse(&format!(r#""run_as":{value}"#)).unwrap().run_as.unwrap();
        let (user, group) = ("batch".to_owned(), Some("jobs".to_owned()));
        assert_eq!(run_as(r#""batch""#), RunAs { user: user.clone(), group: None });
        assert_eq!(run_as(r#""batch:jobs""#), RunAs { user: user.clone(), group: group.clone() });
        assert_eq!(run_as(r#"{"user":"batch"}"#), RunAs { user: user.clone(), group: None });
        assert_eq!(run_as(r#"{"user":"batch","group":"jobs"}"#), RunAs { user, group });
    }

    #[test]
    fn limits_are_numbers_or_have_units() {
        let text = r#""limits":{"memory":"512M","cpu_seconds":60,"open_files":"1024","processes":50,
            "file_size":"2 GiB","core":0}"#;
        let expected = Limits {
            memory: Some(512 << 20),
            cpu_seconds: Some(60),
            open_files: Some(1024),
            processes: Some(50),
            file_size: Some(2 << 30),
            core: Some(0),
        };
        assert_eq!(parse(text).unwrap().limits, expected);
    }

    #[test]
    fn limits_survive_the_way_to_another_process() {
        let limits = Limits { memory: Some(1 << 20), core: Some(0), ..Limits::default() };
        let text = serde_json::to_string(&limits).unwrap();
        assert_eq!(text, r#"{"memory":1048576,"core":0}"#);
        assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), limits);
    }

    #[test]
    fn of_two_limits_the_lower_one_wins() {
        let node = Limits { memory: Some(5 << 20), cpu_seconds: Some(10), ..Limits::default() };
        let plugin = Limits { memory: Some(3 << 20), cpu_seconds: Some(20), processes: Some(7), ..node };
        let expected =
            Limits { memory: Some(3 << 20), cpu_seconds: Some(10), processes: Some(7), ..Limits::default() };
        assert_eq!(node.lower_of(plugin), expected);
        assert_eq!(plugin.lower_of(node), expected);
        assert_eq!(node.lower_of(Limits::default()), node);
    }

    #[test]
    fn mistakes_name_the_key() {
        let cases = [
            (r#""plugin_environment":["A","A=B"]"#, "plugin_environment[1]: expected the name of a variable"),
            (r#""plugin_environment":["*A"]"#, "plugin_environment[0]: expected the name of a variable"),
            (r#""plugin_environment":[""]"#, "plugin_environment[0]: expected the name of a variable"),
            (r#""run_as":7"#, "run_as: expected \"user\", \"user:group\" or an object with user and group"),
            (r#""run_as":"a:""#, "run_as: the names of user and group must not be empty"),
            (r#""run_as":"""#, "run_as: the names of user and group must not be empty"),
            (r#""run_as":{"users":"a"}"#, "run_as: unknown field `users`"),
            (r#""run_as":{"group":"a"}"#, "run_as: missing field `user`"),
            (r#""limits":{"memory":"lots"}"#, "limits.memory: expected a number of bytes, at least 1048576"),
            (r#""limits":{"memory":1000}"#, "limits.memory: expected a number of bytes, at least 1048576"),
            (r#""limits":{"cpu_seconds":0}"#, "limits.cpu_seconds: expected a whole number, at least 1"),
            (r#""limits":{"open_files":3}"#, "limits.open_files: expected a whole number, at least 8, got 3"),
            (r#""limits":{"processes":1.5}"#, "limits.processes: expected a whole number, at least 1"),
            (r#""limits":{"core":-1}"#, "limits.core: expected a number of bytes, at least 0"),
            (r#""limits":{"memroy":1}"#, "unknown field `memroy`"),
            (r#""cgroup":"disbatch""#, "cgroup: expected the absolute path of a folder, got \"disbatch\""),
        ];
        for (keys, message) in cases {
            let error = parse(keys).unwrap_err().to_string();
            assert!(error.contains(message), "{keys}: {error}");
        }
    }

    #[test]
    fn secrets_have_variables_and_perhaps_plugins() {
        let config = parse(
            r#""secrets_dir":"/run/secrets","secret_environment":{"yl.env/cloudant":"cloudant",
            "backup":{"variable":"BACKUP_KEY","plugins":["My::Backup"]}}"#,
        )
        .unwrap();
        assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
        let of = |plugin: &str| -> Vec<(String, String)> {
            let plugin = plugin.parse().unwrap();
            let secrets = config.secret_environment.of(&plugin);
            secrets.map(|secret| (secret.name.clone(), secret.variable.clone())).collect()
        };
        let cloudant = ("yl.env/cloudant".to_owned(), "cloudant".to_owned());
        assert_eq!(of("Other"), std::slice::from_ref(&cloudant));
        assert_eq!(of("My::Backup"), [("backup".to_owned(), "BACKUP_KEY".to_owned()), cloudant]);
        for none in [r#""secret_environment":null"#, r#""secret_environment":{}"#, r#""quiet":0"#] {
            assert!(parse(none).unwrap().secret_environment.is_empty(), "{none}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            (r#"{"../x":"A"}"#, "\"../x\": expected a path within the folder of secrets"),
            (r#"{"/x":"A"}"#, "\"/x\": expected a path within the folder of secrets"),
            (r#"{"a//b":"A"}"#, "\"a//b\": expected a path within"),
            (r#"{"a b":"A"}"#, "\"a b\": expected a path within"),
            (r#"{"a":"A=B"}"#, "\"a\": \"A=B\" is no variable that may have a secret"),
            (r#"{"a":""}"#, "\"a\": \"\" is no variable that may have a secret"),
            (r#"{"a":"JOB_PARAMS"}"#, "\"a\": \"JOB_PARAMS\" is no variable that may have a secret"),
            (r#"{"a":"TENANT_ID"}"#, "\"a\": \"TENANT_ID\" is no variable that may have a secret"),
            (r#"{"a":7}"#, "\"a\": expected a variable, or an object with variable and plugins, got 7"),
            (r#"{"a":{"variable":"A"}}"#, "\"a\": missing field `plugins`"),
            (r#"{"a":{"variable":"A","plugins":[],"x":1}}"#, "\"a\": unknown field `x`"),
            (r#"{"a":"A","b":"A"}"#, "\"a\" and \"b\" have the same variable"),
            (r#"["a"]"#, "invalid type: sequence, expected a map"),
        ];
        for (value, message) in cases {
            let keys = format!(r#""secrets_dir":"s","secret_environment":{value}"#);
            let error = parse(&keys).unwrap_err().to_string();
            assert!(error.contains("secret_environment") && error.contains(message), "{value}: {error}");
        }
        let error = parse(r#""secret_environment":{"a":"A"}"#).unwrap_err().to_string();
        assert!(error.ends_with("secrets_dir: must be defined for secret_environment"), "{error}");
    }
}
