//! The plugins of the example: `plugins.json` says what they ask for, and `plugins.py` what they do.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::Script;

const MANIFESTS: &str = include_str!("plugins.json");

/// The program of all of them.
const PROGRAM: &str = include_str!("plugins.py");

/// Writes all of them below `folder`.
pub(super) fn install(folder: &Path) -> anyhow::Result<()> {
    let manifests: Vec<Value> = serde_json::from_str(MANIFESTS)?;
    for manifest in manifests {
        let name = manifest["name"].as_str().context("a plugin without a name")?;
        let version = manifest["version"].as_str().context("a plugin without a version")?;
        let script = Script { name: &format!("{name}-{version}"), text: PROGRAM };
        script.install_as(folder, &manifest)?;
    }
    Ok(())
}
