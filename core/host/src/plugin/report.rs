//! What a node says of plugins in its entry, so that others know why it cannot run one.

use bson::{Bson, Document, doc};
use disbatch_documents::PluginName;

use super::{Engine, Plugins, Problem};
use crate::plugin::find::adapter_program;

/// The field of a node.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The plugin, if its name is known: a manifest that cannot be read may name none.
    pub plugin: Option<String>,
    /// The file or program, and what is wrong with it.
    pub why: String,
}

impl Report {
    fn document(&self) -> Document {
        let mut document = doc! { "why": &self.why };
        if let Some(plugin) = &self.plugin {
            document.insert("plugin", plugin);
        }
        document
    }

    /// All that a node has told.
    pub fn of_node(node: &Document) -> Vec<Self> {
        let listed = node.get_array(PROBLEMS).map(Vec::as_slice).unwrap_or_default();
        let read = |report: &Document| {
            let plugin = report.get_str("plugin").ok().map(str::to_owned);
            Some(Self { plugin, why: report.get_str("why").ok()?.to_owned() })
        };
        listed.iter().filter_map(Bson::as_document).filter_map(read).collect()
    }
}

/// As a node has them.
pub fn documents(reports: &[Report]) -> Vec<Document> {
    reports.iter().map(Report::document).collect()
}

impl Plugins {
    /// What keeps plugins from running here, for the node's entry.
    pub fn reports(&self) -> Vec<Report> {
        let report = |problem: &Problem| Report {
            plugin: self.plugin_of(problem).map(ToString::to_string),
            why: problem.why().chars().take(LONGEST).collect(),
        };
        self.problems.iter().take(MOST).map(report).collect()
    }

    /// What keeps the plugin with this name from running.
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

#[cfg(test)]
mod tests {
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
