//! The key `engines`: which ways to run plugins this node has, besides programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Flag;
use crate::plugin::Engine;

/// What is configured of engines. Programs, and Perl where there is Perl, can be run anywhere. Whether people may start
/// containers or ask web services is for the node to say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Engines {
    /// Perl modules.
    pub perl: PerlEngine,
    /// Containers; not to be run when unset.
    pub container: Option<ContainerEngine>,
    /// Web services; not to be asked when unset.
    pub http: Option<HttpEngine>,
    /// Kubernetes; not to be used when unset.
    pub kubernetes: Option<KubernetesEngine>,
}

/// How Perl modules are run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct PerlEngine {
    /// Whether they are.
    pub enabled: Flag,
    /// The interpreter, `perl` when unset.
    pub interpreter: Option<String>,
    /// Folders in which modules are looked for before those of the interpreter; relative to the configuration.
    pub lib: Vec<PathBuf>,
}

impl Default for PerlEngine {
    fn default() -> Self {
        Self { enabled: Flag::on(), interpreter: None, lib: Vec::new() }
    }
}

/// How containers are run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerEngine {
    /// Whether they are.
    #[serde(skip_serializing)]
    pub enabled: Flag,
    /// The path or the address of the container engine's socket; looked for when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Networks of the container engine, by name, that plugins of the database may have besides [`Self::HARMLESS`].
    #[serde(skip_serializing)]
    pub networks: Vec<String>,
}

impl Default for ContainerEngine {
    fn default() -> Self {
        Self { enabled: Flag::on(), socket: None, networks: Vec::new() }
    }
}

impl ContainerEngine {
    /// Networks that lead to nothing of the node itself: none, and the engine's usual one by its names.
    pub const HARMLESS: [&str; 3] = ["none", "bridge", "default"];

    /// Whether a plugin that the database defines may have this network here.
    pub fn lends(&self, network: &str) -> bool {
        Self::HARMLESS.contains(&network) || self.networks.iter().any(|known| known == network)
    }
}

/// How web services are asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpEngine {
    /// Whether they are.
    #[serde(skip_serializing)]
    pub enabled: Flag,
    /// The address of the web server that they call back.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub callback_url: Option<String>,
    /// The hosts that may be asked; when unset those that plugins name, and none that tasks name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
}

impl Default for HttpEngine {
    fn default() -> Self {
        Self { enabled: Flag::on(), callback_url: None, allow: None }
    }
}

/// How Kubernetes is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubernetesEngine {
    /// Whether it is.
    #[serde(skip_serializing)]
    pub enabled: Flag,
    /// How the cluster is reached; relative to the configuration. Looked for when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of tasks whose plugin and tenant have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_namespaces: Option<TenantNamespaces>,
}

impl Default for KubernetesEngine {
    fn default() -> Self {
        Self { enabled: Flag::on(), kubeconfig: None, namespace: None, tenant_namespaces: None }
    }
}

/// Which namespace a tenant has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected an object of tenants and namespaces, or text with {tenant}")]
pub enum TenantNamespaces {
    /// By the tenant's name, which stands in the place of `{tenant}`.
    Named(String),
    /// Each its own.
    Each(BTreeMap<String, String>),
}

impl Engines {
    /// Whether plugins of this engine are run here.
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

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let given = Option::<String>::deserialize(deserializer)?;
    match given {
        Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => {
            Err(D::Error::custom(format!("expected an address with http:// or https://, got {url:?}")))
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
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
}
