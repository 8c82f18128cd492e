//! Where the keys of secure parameters are, and which other secrets of a node its plugins get.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use disbatch_documents::PluginName;

/// The name of a secret has so many characters at most.
const LONGEST_NAME: usize = 200;

/// Variables that tell of a task begin so. They have no secret.
const OF_TASKS: [&str; 2] = ["DISBATCH_", "JOB_"];

/// Others that tell of a task.
const OF_A_TASK: [&str; 4] = ["RUN_ID", "TENANT_ID", "LAST_SUCCESS_START", "LAST_SUCCESS_FINISH"];

/// The keys of secure parameters, see [`crate::secrets`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Secrets {
    /// A file with a key on each line. A relative path is one from the folder of the configuration.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

/// Which named secrets plugins find in which variables. A secret is a file of the folder `secrets_dir`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretEnvironment(Vec<NamedSecret>);

/// A secret that plugins find in a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSecret {
    /// The path of its file, relative to the folder of secrets.
    pub name: String,
    pub variable: String,
    /// The plugins that get it; all of them if none are named.
    pub plugins: Option<Vec<PluginName>>,
}

impl SecretEnvironment {
    /// Those that this plugin gets.
    pub fn of<'a>(&'a self, plugin: &'a PluginName) -> impl Iterator<Item = &'a NamedSecret> {
        let is_for = move |secret: &&NamedSecret| match &secret.plugins {
            None => true,
            Some(plugins) => plugins.contains(plugin),
        };
        self.0.iter().filter(is_for)
    }

    /// Whether there are none.
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

impl<'de> Deserialize<'de> for SecretEnvironment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?.unwrap_or_default();
        let mut secrets: Vec<NamedSecret> = Vec::new();
        for (name, value) in given {
            let secret = secret(&name, value).map_err(|why| D::Error::custom(format!("{name:?}: {why}")))?;
            if let Some(other) = secrets.iter().find(|other| other.variable == secret.variable) {
                let both = format!("{:?} and {name:?} have the same variable", other.name);
                return Err(D::Error::custom(both));
            }
            secrets.push(secret);
        }
        Ok(Self(secrets))
    }
}

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
    use crate::config::testing::parse;

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
