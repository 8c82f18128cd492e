//! Versions of a plugin side by side.

use std::collections::BTreeMap;
use std::sync::Arc;

use disbatch_documents::{PluginName, VersionError};

use super::{Manifest, Plugin, Plugins};

/// Why a plugin is not another version of one that has its name.
#[derive(Debug, thiserror::Error)]
pub enum HiddenVersion {
    #[error("")]
    None,
    #[error(" and version")]
    Same,
    #[error(", as its version cannot be used: {0}")]
    Unusable(#[from] VersionError),
}

impl Plugins {
    /// The versions of plugins that say one, as `Name@version`, in order.
    pub fn versions(&self) -> impl Iterator<Item = &PluginName> {
        self.usable().map(|(name, _)| name).filter(|name| name.version().is_some())
    }

    /// The manifests of all plugins in all versions, the one that counts for a name before its other versions. Some come twice.
    pub fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.usable().map(|(_, plugin)| &plugin.manifest)
    }

    /// Under which name a plugin in a folder is found: its own, or that of a version, if another one has that name already. One that cannot
    /// run leaves its name to no other version: tasks of a queue that pins none would be run by that all at once.
    pub(super) fn name_for(&self, manifest: &Manifest) -> Result<PluginName, HiddenVersion> {
        let name = &manifest.name;
        let is_there = self.by_name.contains_key(name) || self.unsure.contains_key(name);
        let version = manifest.version();
        match version {
            _ if !is_there && !self.problems.iter().any(|problem| problem.is_about(name)) => Ok(name.clone()),
            Ok(Some(version)) => {
                let name = name.at(&version);
                let is_hidden = self.by_name.contains_key(&name) || self.unsure.contains_key(&name);
                if is_hidden { Err(HiddenVersion::Same) } else { Ok(name) }
            }
            Ok(None) if is_there => Err(HiddenVersion::None),
            Ok(None) => Ok(name.clone()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Under its name, and if it has a version, under that besides.
pub(super) fn insert(plugins: &mut BTreeMap<PluginName, Arc<Plugin>>, name: PluginName, plugin: Plugin) {
    let (version, plugin) = (plugin.manifest.version().ok().flatten(), Arc::new(plugin));
    if let Some(version) = version {
        plugins.entry(name.at(&version)).or_insert_with(|| Arc::clone(&plugin));
    }
    plugins.insert(name, plugin);
}
