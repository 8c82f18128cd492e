//! Plugins: which there are, and which program runs each.
//!
//! A plugin is a folder with a `plugin.json` manifest. The manifests of the shipped plugins are built in;
//! their programs are looked for beside this one, and where packages install them. The configuration may name Perl modules
//! and programs of Disbatch 4.4 besides, and the database may define what needs no folder ([`Plugins::with_workers`]).
//!
//! The first of a name counts: plugins in folders come before programs of the configuration, shipped plugins, Perl modules, and what the database defines.
//! Others in folders are versions of it, if they say another version: what a queue pins is found as `Name@version`, the first one under both names.

mod definitions;
mod find;
mod manifest;
mod perl;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disbatch_documents::PluginName;
use disbatch_values::json::to_strict;
use serde_json::Value;

pub use disbatch_values::engine::{Engine, EngineError};
pub use find::adapter_program;
pub use manifest::{
    Batch, CallbackAuth, Container, Http, Kubernetes, Manifest, ManifestError, Perl, Program, ProgramType,
    Template, Warm,
};
pub use report::{HiddenVersion, PROBLEMS, Problem, Report, VERSIONS, documents, lacks};

use crate::config::{AllowedPlugins, Config, Engines, PluginEntry};
use find::{find_adapter, find_program};
use report::insert;

const SHIPPED: [&str; 3] = [
    include_str!("../../../plugins/demo/plugin.json"),
    include_str!("../../../plugins/notify/plugin.json"),
    include_str!("../../../plugins/shell/plugin.json"),
];

#[derive(Debug, Clone)]
pub struct Plugin {
    pub manifest: Manifest,
    /// The program to run, absolute: that of its author, the interpreter of a Perl module, or an adapter of ours.
    pub program: PathBuf,
    /// Arguments of the program; of a Perl module those of what loads it.
    pub arguments: Vec<String>,
    /// Whether its result comes apart from what it writes to its standard streams.
    pub answers: bool,
    /// Whether it is a runner itself, which a DEN starts in place of one of ours.
    pub handoff: bool,
    /// What its adapter is told of the manifest. None: it has no adapter.
    pub adapter: Option<Value>,
    pub folder: Option<PathBuf>,
}

impl Plugin {
    /// One with this program and these arguments. What else there is to it, its manifest says.
    pub fn new(manifest: Manifest, program: PathBuf, arguments: Vec<String>) -> Self {
        let kind = manifest.program_type();
        Self {
            answers: manifest.engine == Engine::Perl || kind.is_some_and(|kind| kind != ProgramType::Handoff),
            handoff: kind == Some(ProgramType::Handoff),
            adapter: manifest.settings(),
            folder: None,
            manifest,
            program,
            arguments,
        }
    }
}

#[derive(Debug, Default)]
pub struct Plugins {
    /// Under their names, and those that have a version under that, too: `Name` comes before `Name@version`.
    by_name: BTreeMap<PluginName, Arc<Plugin>>,
    /// Perl modules of which it is not known whether they are there, because the interpreter is silent. They are problems, too.
    unsure: BTreeMap<PluginName, Arc<Plugin>>,
    /// Whose the manifests in the folders are, by their paths, be they right or wrong.
    of_files: BTreeMap<PathBuf, PluginName>,
    pub problems: Vec<Problem>,
    engines: Engines,
    /// Those that the configuration allows; all if it does not say.
    allowed: Option<AllowedPlugins>,
    /// Those that the database defines.
    of_workers: BTreeSet<PluginName>,
    /// Those of the host itself that are not run, because the database defines them as well.
    put_aside: BTreeSet<PluginName>,
    /// How many of the problems are those of the host itself.
    own_problems: usize,
}

impl Plugins {
    /// Looks for plugins in the configured folders, then among the programs that the configuration names, the shipped
    /// plugins, and the Perl modules that it names.
    ///
    /// Relative folders are relative to the configuration file.
    pub fn discover(config: &Config) -> Self {
        let mut plugins =
            Self { engines: config.engines.clone(), allowed: config.plugins.clone(), ..Self::default() };
        for folder in &config.plugin_dirs {
            plugins.add_folder(&config.folder().join(folder));
        }
        let allowed: Vec<(&str, &PluginEntry)> =
            config.plugins.iter().flat_map(AllowedPlugins::entries).collect();
        for &(name, entry) in &allowed {
            if let PluginEntry::Program(_) | PluginEntry::Wrong(_) = entry {
                plugins.add_entry((name, entry), config);
            }
        }
        for manifest in SHIPPED {
            plugins.add_shipped(manifest);
        }
        for &(name, entry) in &allowed {
            if let PluginEntry::Module | PluginEntry::Named = entry {
                plugins.add_entry((name, entry), config);
            }
        }
        plugins.own_problems = plugins.problems.len();
        plugins
    }

    /// The plugin with this name, in the version that is meant with it, if one is.
    pub fn get(&self, name: &PluginName) -> Option<&Plugin> {
        self.by_name.get(name).filter(|_| !self.is_put_aside(name)).map(Arc::as_ref)
    }

    /// The plugin with this name, for whoever runs it at once. Unlike [`Plugins::get`], this has Perl modules, too, of which it is
    /// not known whether they are there, because the interpreter was slow to say where it looks: when it runs one, it says
    /// itself if there is none.
    pub fn get_to_run(&self, name: &PluginName) -> Option<&Arc<Plugin>> {
        let found = self.by_name.get(name).or_else(|| self.unsure.get(name));
        found.filter(|_| !self.is_put_aside(name))
    }

    pub fn names(&self) -> impl Iterator<Item = &PluginName> {
        self.usable().map(|(name, _)| name).filter(|name| name.version().is_none())
    }

    fn usable(&self) -> impl Iterator<Item = (&PluginName, &Arc<Plugin>)> {
        self.by_name.iter().filter(move |(name, _)| !self.is_put_aside(name))
    }

    fn is_put_aside(&self, name: &PluginName) -> bool {
        self.put_aside.iter().any(|aside| aside.as_str() == name.base())
    }

    /// A folder is a plugin, or holds one folder for each.
    fn add_folder(&mut self, folder: &Path) {
        if folder.join("plugin.json").is_file() {
            return self.add_file(&folder.join("plugin.json"));
        }
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(source) => {
                return self.problems.push(Problem::Folder { folder: folder.to_owned(), source });
            }
        };
        let mut manifests: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path().join("plugin.json")))
            .filter(|path| path.is_file())
            .collect();
        manifests.sort();
        for path in manifests {
            self.add_file(&path);
        }
    }

    fn add_file(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path);
        if let Some(name) = text.as_deref().ok().and_then(name_in) {
            self.of_files.insert(path.to_owned(), name);
        }
        match text.map_err(ManifestError::Read).and_then(|text| Manifest::parse(&text)) {
            Ok(manifest) => match self.name_for(&manifest) {
                Ok(name) => {
                    let folder = path.parent().unwrap_or(Path::new("/"));
                    self.add_with((name, manifest), Some(folder), Some(folder));
                }
                Err(version) => {
                    let name = manifest.name;
                    self.problems.push(Problem::Duplicate { name, path: path.to_owned(), version });
                }
            },
            Err(source) => self.problems.push(Problem::Manifest { path: path.to_owned(), source }),
        }
    }

    /// What the configuration says of a plugin. A name that says nothing else may be that of a Perl module.
    fn add_entry(&mut self, (name, entry): (&str, &PluginEntry), config: &Config) {
        let wrong = |message: String| {
            let source = ManifestError::invalid(format!("plugins.{name}"), message);
            Problem::Manifest { path: config.path.clone(), source }
        };
        let is_named = *entry == PluginEntry::Named;
        let name: PluginName = match name.parse() {
            Ok(name) => name,
            Err(_) if is_named => return,
            Err(error) => return self.problems.push(wrong(error.to_string())),
        };
        if self.by_name.contains_key(&name) {
            return;
        }
        let manifest = match entry {
            PluginEntry::Named | PluginEntry::Module => Manifest::of_perl_module(name),
            PluginEntry::Program(program) => Manifest::of_program(name, program.clone()),
            PluginEntry::Wrong(why) => return self.problems.push(wrong(why.clone())),
            PluginEntry::Off => return,
        };
        if is_named && !(self.engines.is_enabled(Engine::Perl) && perl::is_there(&manifest, &self.engines)) {
            return;
        }
        self.add(manifest, config.path.parent());
    }

    fn add_shipped(&mut self, text: &str) {
        match Manifest::parse(text) {
            // A configured plugin of that name takes its place.
            Ok(manifest) if self.by_name.contains_key(&manifest.name) => {}
            Ok(manifest) => self.add(manifest, None),
            Err(source) => self.problems.push(Problem::Manifest { path: "(built in)".into(), source }),
        }
    }

    fn add(&mut self, manifest: Manifest, own: Option<&Path>) {
        self.add_with((manifest.name.clone(), manifest), own, None);
    }

    /// The same for one that is found under this name, and whose manifest is in `folder`, if it is.
    fn add_with(
        &mut self,
        (name, manifest): (PluginName, Manifest),
        own: Option<&Path>,
        folder: Option<&Path>,
    ) {
        let folder = folder.map(Path::to_owned);
        match self.resolve((&name, manifest), own) {
            Ok((plugin, None)) => insert(&mut self.by_name, name, Plugin { folder, ..plugin }),
            Ok((plugin, Some(doubt))) => {
                // What was found of that name before comes first, be it one that cannot run.
                if !self.problems.iter().any(|problem| problem.is_about(&name)) {
                    insert(&mut self.unsure, name, Plugin { folder, ..plugin });
                    self.problems.push(doubt);
                }
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Which program runs a plugin, and what leaves open whether it can; `own`: its folder, if it has one.
    fn resolve(
        &self,
        (name, manifest): (&PluginName, Manifest),
        own: Option<&Path>,
    ) -> Result<(Plugin, Option<Problem>), Problem> {
        let (engine, name) = (manifest.engine, name.clone());
        if !self.engines.is_enabled(engine) {
            let why = format!(
                "the engine {engine} is not enabled on this node: see engines.{engine} in its configuration"
            );
            return Err(Problem::Engine { name, why });
        }
        if engine == Engine::Perl {
            return match perl::resolve(&manifest, own, &self.engines) {
                Ok(perl::PerlCommand { program, arguments, doubt }) => {
                    let doubt = doubt.map(|why| Problem::Engine { name, why });
                    Ok((Plugin::new(manifest, program, arguments), doubt))
                }
                Err(why) => Err(Problem::Engine { name, why }),
            };
        }
        let words = words(&manifest);
        let (program, arguments) = match words.split_first() {
            Some((program, arguments)) => (program.as_str(), arguments.to_vec()),
            None => ("", Vec::new()),
        };
        let found =
            if engine.adapter().is_some() { find_adapter(program) } else { find_program(program, own) };
        match found {
            Ok(path) => Ok((Plugin::new(manifest, path, arguments), None)),
            Err(searched) if engine.adapter().is_some() => {
                let why = format!(
                    "the engine {engine} is not in this installation: there is no {program} in {searched}"
                );
                Err(Problem::Engine { name, why })
            }
            Err(searched) => Err(Problem::Program { program: program.to_owned(), searched, name }),
        }
    }
}

/// The name that a manifest gives, be it right or wrong otherwise.
fn name_in(manifest: &str) -> Option<PluginName> {
    let manifest: Value = serde_json::from_str(&to_strict(manifest)).ok()?;
    manifest.get("name")?.as_str()?.parse().ok()
}

/// The program that runs a plugin, and its arguments.
fn words(manifest: &Manifest) -> Vec<String> {
    if let Some(adapter) = manifest.engine.adapter() {
        return vec![adapter.to_owned()];
    }
    if !manifest.command.is_empty() || manifest.engine == Engine::Exec {
        return manifest.command.clone();
    }
    let Program { path, args, .. } = manifest.program.clone().unwrap_or_default();
    let program = path.unwrap_or_else(|| manifest.name.as_str().to_owned());
    [program].into_iter().chain(args).collect()
}

#[cfg(test)]
mod tests;
