//! The key `engines`: which ways to run plugins this node has, besides programs; and the key `plugins`: names, or an object that says of each
//! how it is run, as Disbatch 4.4 has it.

use std::path::{Path, PathBuf};

use disbatch_values::sections::{ContainerEngine, HttpEngine, KubernetesEngine};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::OnByDefault;
use super::sections::Names;
use crate::plugin::{Engine, Program, ProgramType};

/// What is configured of engines. Programs, and Perl where there is Perl, can be run anywhere. Whether people may start
/// containers or ask web services is for the node to say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Engines {
    pub perl: PerlEngine,
    /// Containers; not to be run when unset.
    pub container: Option<ContainerEngine>,
    /// Web services; not to be asked when unset.
    pub http: Option<HttpEngine>,
    /// Kubernetes; not to be used when unset.
    pub kubernetes: Option<KubernetesEngine>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PerlEngine {
    pub enabled: OnByDefault,
    /// The interpreter, `perl` when unset.
    pub interpreter: Option<String>,
    /// Folders in which modules are looked for before those of the interpreter; relative to the configuration.
    pub lib: Vec<PathBuf>,
}

impl Engines {
    pub fn is_enabled(&self, engine: Engine) -> bool {
        match engine {
            Engine::Exec | Engine::Program => true,
            Engine::Perl => self.perl.enabled.0,
            Engine::Container => self.container.as_ref().is_some_and(|found| found.enabled.0),
            Engine::Http => self.http.as_ref().is_some_and(|found| found.enabled.0),
            Engine::Kubernetes => self.kubernetes.as_ref().is_some_and(|found| found.enabled.0),
        }
    }

    /// What the adapter of an engine is told of the node.
    pub fn told(&self, engine: Engine) -> Value {
        let told = match engine {
            Engine::Exec | Engine::Program | Engine::Perl => return Value::Null,
            Engine::Container => serde_json::to_value(self.container.clone().unwrap_or_default()),
            Engine::Http => serde_json::to_value(self.http.clone().unwrap_or_default()),
            Engine::Kubernetes => serde_json::to_value(self.kubernetes.clone().unwrap_or_default()),
        };
        told.unwrap_or(Value::Null)
    }

    /// The same, where relative paths are seen from `folder`.
    pub(super) fn within(mut self, folder: &Path) -> Self {
        for lib in &mut self.perl.lib {
            *lib = folder.join(&*lib);
        }
        if let Some(interpreter) = self.perl.interpreter.as_mut().filter(|path| path.contains('/')) {
            *interpreter = folder.join(&*interpreter).to_string_lossy().into_owned();
        }
        if let Some(path) = self.kubernetes.as_mut().and_then(|found| found.kubeconfig.as_mut()) {
            *path = folder.join(&*path);
        }
        self
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedPlugins {
    entries: Vec<(String, PluginEntry)>,
    /// What nothing reads of what is said of them, by path.
    pub(super) unknown_keys: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginEntry {
    /// Nothing: it has a manifest, or is a Perl module.
    Named,
    /// It is a Perl module.
    Module,
    /// It is a program with the arguments and the answers of Disbatch 4.4.
    Program(Program),
    Off,
    /// What cannot be understood, and why.
    Wrong(String),
}

impl AllowedPlugins {
    pub fn allows(&self, plugin: &str) -> bool {
        self.names().any(|name| name == plugin)
    }

    /// All names in order, without those that are switched off.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries().filter(|(_, entry)| **entry != PluginEntry::Off).map(|(name, _)| name)
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &PluginEntry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }
}

read_from!(AllowedPlugins, names: Names => {
    let mut unknown_keys = Vec::new();
    let entries = match names {
        Names::List(names) => names.into_iter().map(|name| (name, PluginEntry::Named)).collect(),
        Names::Keys(map) => map
            .into_iter()
            .map(|(name, value)| {
                let entry = entry(&name, value, &mut unknown_keys);
                (name, entry)
            })
            .collect(),
    };
    Ok(AllowedPlugins { entries, unknown_keys })
});

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

    fn engines(engines: &Value) -> Result<Engines, String> {
        let text = json!({ "mongohost": "h", "database": "d", "engines": engines }).to_string();
        let config = Config::parse(&text, Path::new("/etc/disbatch/config.json"));
        config.map(|config| config.engines).map_err(|error| error.to_string())
    }

    #[test]
    fn only_what_runs_programs_of_the_node_needs_no_word() {
        let config = Config::parse(r#"{"mongohost":"h","database":"d"}"#, Path::new("/c.json")).unwrap();
        let enabled = |engines: &Engines| Engine::ALL.map(|engine| engines.is_enabled(engine));
        assert_eq!(enabled(&config.engines), [true, true, true, false, false, false]);
        let all = engines(&json!({ "container": {}, "http": {}, "kubernetes": {} })).unwrap();
        assert_eq!(enabled(&all), [true; 6]);
        let off = json!({ "enabled": 0 });
        let none = json!({ "perl": off, "container": off, "http": off, "kubernetes": off });
        assert_eq!(enabled(&engines(&none).unwrap()), [true, false, true, false, false, false]);
    }

    #[test]
    fn paths_are_seen_from_the_configuration_and_adapters_are_told() {
        let found = engines(&json!({
            "perl": { "lib": ["lib", "/x"], "interpreter": "bin/perl" },
            "kubernetes": { "kubeconfig": "kube", "tenant_namespaces": "disbatch-{tenant}" },
            "http": { "callback_url": "https://dci.example", "allow": ["*.example"] },
        }));
        let found = found.unwrap();
        assert_eq!(found.perl.lib, [Path::new("/etc/disbatch/lib"), Path::new("/x")]);
        assert_eq!(found.perl.interpreter.as_deref(), Some("/etc/disbatch/bin/perl"));
        let kubernetes =
            json!({ "kubeconfig": "/etc/disbatch/kube", "tenant_namespaces": "disbatch-{tenant}" });
        assert_eq!(found.told(Engine::Kubernetes), kubernetes);
        let http = json!({ "callback_url": "https://dci.example", "allow": ["*.example"] });
        assert_eq!(found.told(Engine::Http), http);
        assert_eq!(found.told(Engine::Container), json!({}));
    }

    #[test]
    fn networks_are_lent_by_their_exact_names() {
        let found = engines(&json!({ "container": { "networks": ["batch"] } })).unwrap();
        let container = found.container.as_ref().unwrap();
        for network in ["none", "bridge", "default", "batch"] {
            assert!(container.lends(network), "{network}");
        }
        for network in
            ["", "host", "Batch", "batch2", "slirp4netns:allow_host_loopback=true", "pasta", "private"]
        {
            assert!(!container.lends(network), "{network}");
        }
        assert_eq!(found.told(Engine::Container), json!({}), "that is for the node, and not for the adapter");
        assert!(!ContainerEngine::default().lends("batch"));
    }

    #[test]
    fn mistakes_are_named() {
        for (value, expected) in [
            (json!({ "container": { "networks": "all" } }), "engines.container.networks: "),
            (json!({ "http": { "callback_url": "dci" } }), "engines.http.callback_url: expected an address"),
            (json!({ "container": { "enabled": "maybe" } }), "engines.container.enabled: expected true"),
            (
                json!({ "kubernetes": { "tenant_namespaces": 5 } }),
                "engines.kubernetes.tenant_namespaces: expected",
            ),
        ] {
            let error = engines(&value).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

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
