//! Plugins that a test writes for itself.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::process::binary;

/// A plugin as a script.
#[derive(Debug, Clone, Copy)]
pub struct Script<'a> {
    /// The plugin's name.
    pub name: &'a str,
    /// The script with its `#!` line.
    pub text: &'a str,
}

impl Script<'_> {
    /// Installs it in a folder of its own below `plugins`.
    pub fn install(&self, plugins: &Path) -> anyhow::Result<()> {
        self.install_as(plugins, &json!({ "name": self.name, "command": ["./run"] }))
    }

    /// Installs it with this manifest, whose command has to be `./run`, with arguments or without.
    pub fn install_as(&self, plugins: &Path, manifest: &Value) -> anyhow::Result<()> {
        let folder = plugins.join(self.name.replace("::", "-"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("run"), self.text)?;
        fs::set_permissions(folder.join("run"), Permissions::from_mode(0o755))?;
        fs::write(folder.join("plugin.json"), manifest.to_string())?;
        Ok(())
    }
}

/// Installs a plugin that is nothing but a manifest: `engine` with this section.
pub fn install_manifest(plugins: &Path, name: &str, engine: &str, section: &Value) -> anyhow::Result<()> {
    let folder = plugins.join(name);
    fs::create_dir_all(&folder)?;
    let mut manifest = json!({ "name": name, "engine": engine });
    manifest[engine] = section.clone();
    Ok(fs::write(folder.join("plugin.json"), manifest.to_string())?)
}

/// The program of [`install_recorder`].
const RECORDER: &str = "disbatch-faults-plugin";

/// Installs the plugin that keeps records of its life in the folder `records`; see [`crate::faults::work`] for
/// the parameters of its tasks. It is copied, so that its process is known by its program.
pub fn install_recorder(plugins: &Path, name: &str, records: &Path) -> anyhow::Result<()> {
    let folder = plugins.join(name);
    fs::create_dir_all(&folder)?;
    fs::create_dir_all(records)?;
    fs::copy(binary(RECORDER)?, folder.join(RECORDER))?;
    let manifest = json!({ "name": name, "command": [format!("./{RECORDER}"), records] });
    fs::write(folder.join("plugin.json"), manifest.to_string())?;
    Ok(())
}
