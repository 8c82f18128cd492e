//! Configuration files, which are relaxed JSON, and manifests of plugins.

use std::path::Path;
use std::time::Duration;

use disbatch_core::config::{Config, ConfigError};
use disbatch_core::json::to_strict;
use disbatch_core::plugin::{Engine, Manifest};
use serde_json::Value;

/// The bytes are such a file.
///
/// # Panics
/// JSON means something else than it says; a comment changes a configuration; or a configuration or a manifest is accepted
/// that cannot be used.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let strict = serde_json::from_str::<Value>(text).ok();
    if let Some(value) = &strict {
        let read = serde_json::from_str::<Value>(&to_strict(text));
        assert_eq!(read.ok().as_ref(), Some(value), "{text}");
    }
    let config = parse(text);
    if let Ok(config) = &config {
        assert!(!config.mongohost.is_empty() && !config.database.is_empty());
        assert!(config.lease() >= Duration::from_secs(1));
    }
    let commented = parse(&format!("# before\n{text}\n# after"));
    assert_eq!(keys(&commented), keys(&config), "{text}");
    let manifest = Manifest::parse(text);
    if let Ok(manifest) = &manifest {
        check_manifest(manifest);
    }
    config.is_ok() || manifest.is_ok()
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/disbatch/config.json"))
}

/// What nothing reads of a configuration that can be used.
fn keys(config: &Result<Config, ConfigError>) -> Option<&[String]> {
    config.as_ref().ok().map(|config| config.unknown_keys.as_slice())
}

/// Its name is a word that is in no path.
fn check_manifest(manifest: &Manifest) {
    let name = manifest.name.as_str();
    assert!(!name.is_empty() && !name.contains(['/', '\\', '.', '\0', ' ']), "{name:?}");
    assert!(manifest.engine != Engine::Exec || !manifest.command.is_empty());
    if let Some(warm) = manifest.warm {
        assert!(warm.tasks > 0, "{warm:?}");
    }
}
