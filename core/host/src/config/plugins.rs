//! The key `plugins`: names, or an object that says of each how it is run, as Disbatch 4.4 has it.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::plugin::{Program, ProgramType};

/// The plugins that a queue may be created with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedPlugins {
    entries: Vec<(String, PluginEntry)>,
    /// What nothing reads of what is said of them, by path.
    pub(super) unknown_keys: Vec<String>,
}

/// What is said of a plugin besides its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginEntry {
    /// Nothing: it has a manifest, or is a Perl module.
    Named,
    /// It is a Perl module.
    Module,
    /// It is a program with the arguments and the answers of Disbatch 4.4.
    Program(Program),
    /// It is switched off.
    Off,
    /// What cannot be understood, and why.
    Wrong(String),
}

impl AllowedPlugins {
    /// Whether a queue may be created with `plugin`.
    pub fn allows(&self, plugin: &str) -> bool {
        self.names().any(|name| name == plugin)
    }

    /// All names in order, without those that are switched off.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries().filter(|(_, entry)| **entry != PluginEntry::Off).map(|(name, _)| name)
    }

    /// What is said of each.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &PluginEntry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of names or an object with names as keys")]
enum Given {
    List(Vec<String>),
    Keys(Map<String, Value>),
}

impl<'de> Deserialize<'de> for AllowedPlugins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut unknown_keys = Vec::new();
        let entries = match Given::deserialize(deserializer)? {
            Given::List(names) => names.into_iter().map(|name| (name, PluginEntry::Named)).collect(),
            Given::Keys(map) => map
                .into_iter()
                .map(|(name, value)| {
                    let entry = entry(&name, value, &mut unknown_keys);
                    (name, entry)
                })
                .collect(),
        };
        Ok(Self { entries, unknown_keys })
    }
}

/// A value as Perl would take it: what is true is a module.
fn entry(name: &str, value: Value, unknown_keys: &mut Vec<String>) -> PluginEntry {
    let is_module = match &value {
        Value::Object(_) => None,
        Value::Null => Some(false),
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => number.as_f64().map(|number| number != 0.0),
        Value::String(text) => Some(!text.is_empty() && text != "0"),
        Value::Array(_) => None,
    };
    match (is_module, value) {
        (Some(true), _) => PluginEntry::Module,
        (Some(false), _) => PluginEntry::Off,
        (None, Value::Object(object)) => {
            program(name, object, unknown_keys).map_or_else(PluginEntry::Wrong, PluginEntry::Program)
        }
        (None, other) => PluginEntry::Wrong(format!("expected 1, 0 or an object with type, got {other}")),
    }
}

fn program(
    name: &str,
    object: Map<String, Value>,
    unknown_keys: &mut Vec<String>,
) -> Result<Program, String> {
    let mut program = Program::default();
    for (key, value) in object {
        match key.as_str() {
            "type" => {
                program.kind = ProgramType::deserialize(&value).map_err(|error| format!("type: {error}"))?;
            }
            "command" | "path" => {
                let mut words = words(&value).map_err(|why| format!("{key}: {why}"))?.into_iter();
                program.path = words.next();
                let further = std::mem::take(&mut program.args);
                program.args = words.chain(further).collect();
            }
            "args" => program.args.extend(words(&value).map_err(|why| format!("{key}: {why}"))?),
            _ => unknown_keys.push(format!("plugins.{name}.{key}")),
        }
    }
    Ok(program)
}

/// A word, or several.
fn words(value: &Value) -> Result<Vec<String>, String> {
    let word = |value: &Value| value.as_str().filter(|word| !word.is_empty()).map(str::to_owned);
    let words = match value {
        Value::Array(items) => items.iter().map(word).collect(),
        other => word(other).map(|word| vec![word]),
    };
    words.ok_or_else(|| format!("expected text, or a list of texts, got {value}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::config::Config;

    fn read(value: Value) -> AllowedPlugins {
        serde_json::from_value(value).unwrap()
    }

    fn program(kind: ProgramType, path: Option<&str>, args: &[&str]) -> PluginEntry {
        let args = args.iter().map(ToString::to_string).collect();
        PluginEntry::Program(Program { kind, path: path.map(str::to_owned), args })
    }

    #[test]
    fn an_object_says_how_each_is_run() {
        let plugins = read(json!({
            "A": 1, "B": true, "C": 0, "D": { "type": "default" },
            "E": { "type": "nomongo", "command": ["x", "-a"], "args": ["-b"], "timeout": 5 },
            "F": { "type": "mongo", "path": "./x" }, "G": { "type": "later" }, "H": [], "I": { "command": [5] },
        }));
        assert!(plugins.allows("B") && !plugins.allows("C") && !plugins.allows("Z"));
        assert!(!plugins.names().any(|name| name == "C"), "it is switched off");
        let mut wrong = Vec::new();
        let mut right = Vec::new();
        for (name, entry) in plugins.entries() {
            match entry {
                PluginEntry::Wrong(why) => wrong.push(format!("{name}: {why}")),
                entry => right.push((name, entry.clone())),
            }
        }
        let expected = [
            ("A", PluginEntry::Module),
            ("B", PluginEntry::Module),
            ("C", PluginEntry::Off),
            ("D", program(ProgramType::Default, None, &[])),
            ("E", program(ProgramType::Nomongo, Some("x"), &["-a", "-b"])),
            ("F", program(ProgramType::Mongo, Some("./x"), &[])),
        ];
        assert_eq!(right, expected);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("G: type: unknown variant `later`"), "{wrong:?}");
        assert_eq!(plugins.unknown_keys, ["plugins.E.timeout"]);
    }

    #[test]
    fn a_file_of_disbatch_4_4_is_accepted_unchanged() {
        let text = r#"{
            "mongohost": "h", "database": "d", "temp_dir": "tmp", "temp_dir_mode": "0750", "plugin_runner": "run",
            "pre_hook": { "name": "My::Hook", "fatal": 1 }, "node_increase": 5, "queue_increase": 2,
            "plugins": { "My::Module": 1, "Importer": { "type": "default", "timeout": 5 } },
            "dashboard": { "refresh_ms": 5 },
        }"#;
        let config = Config::parse(text, Path::new("/etc/disbatch/config.json")).unwrap();
        assert_eq!(config.unknown_keys, ["dashboard", "plugins.Importer.timeout"]);
        assert_eq!(config.temp_folder(), Path::new("/etc/disbatch/tmp"));
        let plugins = config.plugins.unwrap();
        assert_eq!(plugins.names().collect::<Vec<_>>(), ["Importer", "My::Module"]);
    }

    #[test]
    fn a_list_says_nothing_but_names() {
        let plugins = read(json!(["A", "B"]));
        assert_eq!(plugins.names().collect::<Vec<_>>(), ["A", "B"]);
        assert!(plugins.entries().all(|(_, entry)| *entry == PluginEntry::Named));
        let error = serde_json::from_value::<AllowedPlugins>(json!(5)).unwrap_err().to_string();
        assert!(error.contains("expected a list of names or an object"), "{error}");
    }
}
