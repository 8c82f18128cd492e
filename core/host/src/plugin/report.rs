//! Why plugins cannot run, which versions of them are side by side, and what a node says of both in its entry, so that others know.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bson::{Bson, Document};
use disbatch_documents::{PluginName, VersionError};
use serde::{Deserialize, Serialize};

use super::{Engine, Manifest, ManifestError, Plugin, Plugins};
use crate::plugin::find::adapter_program;

/// Something that looks like a plugin and cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("cannot read plugin folder {folder}: {source}", folder = folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error("plugin manifest {path}: {source}", path = path.display())]
    Manifest { path: PathBuf, source: ManifestError },
    #[error("plugin {name}: program '{program}' is not an executable file in {searched}")]
    Program {
        name: PluginName,
        /// As the manifest names it.
        program: String,
        searched: String,
    },
    /// What runs it is missing or not wanted.
    #[error("plugin {name}: {why}")]
    Engine { name: PluginName, why: String },
    /// Two manifests have the same name, and not two versions.
    #[error("plugin {name} in {path} is hidden by another of the same name{version}", path = path.display())]
    Duplicate {
        name: PluginName,
        path: PathBuf,
        /// Why it is not another version.
        version: HiddenVersion,
    },
}

impl Problem {
    /// What is wrong, without the plugin's name.
    pub fn why(&self) -> String {
        match self {
            Self::Manifest { path, source } => format!("{}: {source}", path.display()),
            Self::Program { program, searched, .. } => {
                format!("its program '{program}' is not an executable file in {searched}")
            }
            Self::Engine { why, .. } => why.clone(),
            Self::Folder { .. } | Self::Duplicate { .. } => self.to_string(),
        }
    }

    /// Whether it keeps the plugin with this name from running.
    pub(super) fn is_about(&self, plugin: &PluginName) -> bool {
        match self {
            Self::Program { name, .. } | Self::Engine { name, .. } => name == plugin,
            // The first two name no plugin, and one that is hidden has another in its place.
            Self::Folder { .. } | Self::Manifest { .. } | Self::Duplicate { .. } => false,
        }
    }
}

/// The field of a node with what keeps plugins from running there.
pub const PROBLEMS: &str = "plugin_problems";

/// The field of a node with the versions of its plugins that say one, as `Name@version`. Queues that pin one need it.
pub const VERSIONS: &str = "plugin_versions";

/// Whether a node has all that it must have of plugins before it claims tasks of a queue. `None`: it does not say what it has.
pub fn lacks(node: &Document, needed: &[PluginName]) -> Option<Vec<PluginName>> {
    let plugins = node.get("plugins").and_then(Bson::as_array)?;
    let versions = node.get_array(VERSIONS).map(Vec::as_slice).unwrap_or_default();
    let has = |plugin: &PluginName| {
        plugins.iter().chain(versions).any(|found| found.as_str() == Some(plugin.as_str()))
    };
    Some(needed.iter().filter(|plugin| !has(plugin)).cloned().collect())
}

/// So many problems are told.
const MOST: usize = 50;

/// So many characters of each.
const LONGEST: usize = 1_000;

/// A plugin that a node cannot run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The file or program, and what is wrong with it.
    pub why: String,
    /// The plugin, if its name is known: a manifest that cannot be read may name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
}

impl Report {
    pub fn of_node(node: &Document) -> Vec<Self> {
        let listed = node.get_array(PROBLEMS).map(Vec::as_slice).unwrap_or_default();
        let read = |report: &Document| {
            let plugin = report.get_str("plugin").ok().map(str::to_owned);
            Some(Self { plugin, why: report.get_str("why").ok()?.to_owned() })
        };
        listed.iter().filter_map(Bson::as_document).filter_map(read).collect()
    }
}

pub fn documents(reports: &[Report]) -> Vec<Document> {
    reports.iter().filter_map(|report| bson::serialize_to_document(report).ok()).collect()
}

impl Plugins {
    pub fn reports(&self) -> Vec<Report> {
        let report = |problem: &Problem| Report {
            plugin: self.plugin_of(problem).map(ToString::to_string),
            why: problem.why().chars().take(LONGEST).collect(),
        };
        self.problems.iter().take(MOST).map(report).collect()
    }

    pub fn problem_with(&self, plugin: &PluginName) -> Option<&Problem> {
        self.problems.iter().find(|problem| self.plugin_of(problem) == Some(plugin))
    }

    /// The plugin that a problem keeps from running, if it is known. One that is hidden has another in its place.
    fn plugin_of<'a>(&'a self, problem: &'a Problem) -> Option<&'a PluginName> {
        match problem {
            Problem::Program { name, .. } | Problem::Engine { name, .. } => Some(name),
            // That of the last time that the manifest could be read.
            Problem::Manifest { path, .. } => self.of_files.get(path),
            Problem::Folder { .. } | Problem::Duplicate { .. } => None,
        }
    }

    /// How plugins can be run here: the engines that are enabled and whose programs are there.
    pub fn engines(&self) -> Vec<Engine> {
        let is_there = |engine: &Engine| engine.adapter().is_none() || adapter_program(*engine).is_some();
        Engine::ALL.into_iter().filter(|engine| self.engines.is_enabled(*engine)).filter(is_there).collect()
    }
}

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

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn what_a_node_tells_is_read_as_it_was_written() {
        let reports = [
            Report { plugin: Some("A".to_owned()), why: "x".to_owned() },
            Report { plugin: None, why: "/p/plugin.json: EOF".to_owned() },
        ];
        let node = doc! { PROBLEMS: documents(&reports) };
        assert_eq!(Report::of_node(&node), reports);
        for odd in [doc! {}, doc! { PROBLEMS: 5 }, doc! { PROBLEMS: [5, { "plugin": "A" }] }] {
            assert_eq!(Report::of_node(&odd), []);
        }
    }
}
