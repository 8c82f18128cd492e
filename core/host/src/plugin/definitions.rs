//! Plugins that the database defines, beside those of the host itself.

use std::sync::LazyLock;

use disbatch_documents::PluginName;

use super::report::insert;
use super::{Manifest, Plugins, Problem, SHIPPED};

static SHIPPED_NAMES: LazyLock<Vec<PluginName>> = LazyLock::new(|| {
    SHIPPED.iter().filter_map(|text| Manifest::parse(text).ok()).map(|shipped| shipped.name).collect()
});

/// Why neither of two plugins is run.
const OF_BOTH: &str = "this node has it, the list plugins of its configuration does not, and the database defines \
    another one: neither is run";

impl Plugins {
    /// Adds plugins that the database defines, in place of those that were added so before. One of the host's own hides
    /// that of the same name, also while it cannot run: its tasks and secrets are not for another one. That is so if the
    /// configuration allows it by name or allows all. If it does not, neither is run: queues may have the name because the
    /// database defines it, and who has defined it does not choose programs of the host.
    pub fn with_workers(&mut self, workers: &[Manifest]) {
        let earlier = std::mem::take(&mut self.of_workers);
        self.by_name.retain(|name, _| !earlier.contains(&name.without_version()));
        self.put_aside.clear();
        self.problems.truncate(self.own_problems);
        for manifest in workers {
            let name = &manifest.name;
            if self.of_workers.contains(name) {
                continue;
            }
            if self.defines(name) {
                if !self.allows(name) && self.put_aside.insert(name.clone()) {
                    self.problems.push(of(name, OF_BOTH.to_owned()));
                }
                continue;
            }
            match self.lent(manifest).and_then(|()| self.resolve((name, manifest.clone()), None)) {
                Ok((plugin, None)) => {
                    self.of_workers.insert(name.clone());
                    insert(&mut self.by_name, name.clone(), plugin);
                }
                Ok((_, Some(problem))) | Err(problem) => self.problems.push(problem),
            }
        }
    }

    /// Keeps in mind whose the manifests are that an earlier look could read, and this one could not: while a file is being
    /// written, or a file system is away, nothing of the database takes their place.
    pub fn remember(&mut self, earlier: &Self) {
        for (path, name) in &earlier.of_files {
            let is_unread = |problem: &Problem| match problem {
                Problem::Manifest { path: unread, .. } => unread == path,
                Problem::Folder { folder, .. } => path.starts_with(folder),
                Problem::Program { .. } | Problem::Engine { .. } | Problem::Duplicate { .. } => false,
            };
            let mut problems = self.problems.iter().take(self.own_problems);
            if !self.of_files.contains_key(path) && problems.any(is_unread) {
                self.of_files.insert(path.clone(), name.clone());
            }
        }
    }

    pub fn names_of_workers(&self) -> impl Iterator<Item = &PluginName> {
        self.of_workers.iter()
    }

    /// Whether the files or the configuration of this host define a plugin of this name, be it one that cannot run.
    pub fn defines(&self, name: &PluginName) -> bool {
        let is_there = self.by_name.contains_key(name) && !self.of_workers.contains(name);
        is_there
            || self.of_files.values().any(|known| known == name)
            || self.problems.iter().take(self.own_problems).any(|problem| problem.is_about(name))
    }

    /// Whether a plugin of this name comes with Disbatch, so that every host may have it.
    pub fn is_shipped(name: &PluginName) -> bool {
        SHIPPED_NAMES.contains(name)
    }

    fn allows(&self, name: &PluginName) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.allows(name.as_str()))
    }

    /// Whether this host lends a container of the database the network that it is to have.
    fn lent(&self, manifest: &Manifest) -> Result<(), Problem> {
        let wanted = manifest.container.as_ref().and_then(|container| container.network.as_deref());
        let engine = self.engines.container.as_ref();
        match (wanted, engine) {
            (Some(network), Some(engine)) if !engine.lends(network) => {
                let key = "engines.container.networks of this node's configuration";
                Err(of(&manifest.name, format!("{key} does not have the network '{network}'")))
            }
            // Without an engine, it is not run at all.
            _ => Ok(()),
        }
    }
}

fn of(name: &PluginName, why: String) -> Problem {
    Problem::Engine { name: name.clone(), why }
}
