//! Plugins: which there are, and which program runs each.
//!
//! A plugin is a folder with a `plugin.json` manifest. The manifests of the shipped plugins are built in;
//! their programs are looked for beside this one, and where packages install them.

mod manifest;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use manifest::{Engine, Manifest, ManifestError, Template, Warm};

use crate::config::Config;
use crate::model::PluginName;

/// The manifests of the plugins in this repository.
const SHIPPED: [&str; 2] =
    [include_str!("../../plugins/demo/plugin.json"), include_str!("../../plugins/shell/plugin.json")];

/// A plugin that can run here.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// What its author says of it.
    pub manifest: Manifest,
    /// The program to run, absolute.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
}

/// Something that looks like a plugin and cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A configured folder cannot be read.
    #[error("cannot read plugin folder {folder}: {source}", folder = folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A manifest is wrong.
    #[error("plugin manifest {path}: {source}", path = path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        source: ManifestError,
    },
    /// The program is missing or not executable.
    #[error("plugin {name}: program '{program}' is not an executable file in {searched}")]
    Program {
        /// The plugin.
        name: PluginName,
        /// As the manifest names it.
        program: String,
        /// Where it was looked for.
        searched: String,
    },
    /// Two manifests have the same name.
    #[error("plugin {name} in {path} is hidden by another of the same name", path = path.display())]
    Duplicate {
        /// The plugin.
        name: PluginName,
        /// The manifest that is not used.
        path: PathBuf,
    },
}

/// All plugins that can run on this host.
#[derive(Debug, Default)]
pub struct Plugins {
    by_name: BTreeMap<PluginName, Plugin>,
    /// What was found and cannot run.
    pub problems: Vec<Problem>,
}

impl Plugins {
    /// Looks for plugins in the configured folders, then among the shipped ones.
    ///
    /// Relative folders are relative to the configuration file.
    pub fn discover(config: &Config) -> Self {
        let mut plugins = Self::default();
        let base = config.path.parent().unwrap_or(Path::new("."));
        for folder in &config.plugin_dirs {
            plugins.add_folder(&base.join(folder));
        }
        for manifest in SHIPPED {
            plugins.add_shipped(manifest);
        }
        plugins
    }

    /// The plugin with this name.
    pub fn get(&self, name: &PluginName) -> Option<&Plugin> {
        self.by_name.get(name)
    }

    /// The names of all plugins, in order.
    pub fn names(&self) -> impl Iterator<Item = &PluginName> {
        self.by_name.keys()
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
        let manifest = std::fs::read_to_string(path)
            .map_err(ManifestError::Read)
            .and_then(|text| Manifest::parse(&text));
        match manifest {
            Ok(manifest) if self.by_name.contains_key(&manifest.name) => {
                self.problems.push(Problem::Duplicate { name: manifest.name, path: path.to_owned() });
            }
            Ok(manifest) => {
                let mut folders = vec![path.parent().unwrap_or(Path::new("/")).to_owned()];
                folders.extend(program_folders());
                self.add(manifest, &folders);
            }
            Err(source) => self.problems.push(Problem::Manifest { path: path.to_owned(), source }),
        }
    }

    fn add_shipped(&mut self, text: &str) {
        match Manifest::parse(text) {
            // A configured plugin of that name takes its place.
            Ok(manifest) if self.by_name.contains_key(&manifest.name) => {}
            Ok(manifest) => self.add(manifest, &program_folders()),
            Err(source) => self.problems.push(Problem::Manifest { path: "(built in)".into(), source }),
        }
    }

    fn add(&mut self, manifest: Manifest, folders: &[PathBuf]) {
        let mut words = manifest.command.iter();
        let program = words.next().map_or("", String::as_str);
        match find_program(program, folders) {
            Some(path) => {
                let plugin = Plugin { program: path, arguments: words.cloned().collect(), manifest };
                self.by_name.insert(plugin.manifest.name.clone(), plugin);
            }
            None => self.problems.push(Problem::Program {
                program: program.to_owned(),
                searched: folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", "),
                name: manifest.name,
            }),
        }
    }
}

/// Where programs without a path are looked for after the plugin's own folder: beside this binary, where
/// packages put the shipped ones, and `PATH`.
fn program_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(beside) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        folders.push(beside.to_owned());
        folders.push(beside.join("../libexec/disbatch"));
    }
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders
}

/// A path with a slash is relative to the plugin's own folder, the first of `folders`.
fn find_program(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let folders = if program.contains('/') { folders.get(..1)? } else { folders };
    folders.iter().map(|folder| folder.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn plugin(folder: &Path, name: &str, command: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("plugin.json"), format!(r#"{{"name":"{name}","command":["{command}","-x"]}}"#))
            .unwrap();
    }

    fn discover(folder: &Path) -> Plugins {
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
        Plugins::discover(&Config::parse(text, &folder.join("config.json")).unwrap())
    }

    #[test]
    fn plugins_are_found_in_folders_relative_to_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        plugin(&folder.path().join("plugins/one"), "My::One", "./run.sh");
        plugin(&folder.path().join("plugins/two"), "My::Two", "run.sh");
        plugin(&folder.path().join("plugins/three"), "My::One", "run.sh");
        plugin(&folder.path().join("plugins/four"), "My::Four", "no-such-program");
        plugin(&folder.path().join("plugins/five"), "not; legal", "run.sh");
        let plugins = discover(folder.path());
        let two = plugins.get(&"My::Two".parse().unwrap()).unwrap();
        assert_eq!(two.program, folder.path().join("plugins/two/run.sh"));
        assert_eq!(two.arguments, ["-x"]);
        assert!(plugins.get(&"My::One".parse().unwrap()).is_some());
        let problems: Vec<String> = plugins
            .problems
            .iter()
            .map(ToString::to_string)
            .filter(|problem| !problem.contains("Disbatch::Plugin"))
            .collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains("five/plugin.json: name: plugin value 'not; legal'"), "{problems:?}");
        assert!(problems[1].contains("program 'no-such-program'"), "{problems:?}");
        assert!(
            problems[2].contains("three/plugin.json is hidden") || problems[2].contains("hidden by another"),
            "{problems:?}"
        );
    }

    /// Whoever writes a manifest decides what runs; but only a program does, and a name is nothing but a name.
    #[test]
    fn what_is_no_program_or_no_name_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let commands = [
            "",
            "/",
            ".",
            "..",
            "./",
            "../",
            "run.sh/",
            "a\\u0000b",
            "bin/sh",
            "%2e%2e/run.sh",
            "..\\\\run.sh",
            "./none",
        ];
        for (number, command) in commands.iter().enumerate() {
            let name = format!("My::P{number}");
            plugin(&folder.path().join(format!("plugins/command{number}")), &name, command);
        }
        let names = ["", "../x", "/x", "a/b", "a.b", "a\\\\b", "a%2fb", "a\\u0000b", "a b"];
        for (number, name) in names.iter().enumerate() {
            plugin(&folder.path().join(format!("plugins/name{number}")), name, "./run.sh");
        }
        let plugins = discover(folder.path());
        let own: Vec<&PluginName> =
            plugins.names().filter(|name| !name.as_str().starts_with("Disbatch::Plugin")).collect();
        assert!(own.is_empty(), "{own:?}");
        let is_wrong = |problem: &&Problem| match problem {
            Problem::Program { name, .. } => name.as_str().starts_with("My::P"),
            Problem::Manifest { path, .. } => path.to_string_lossy().contains("plugins/name"),
            Problem::Folder { .. } | Problem::Duplicate { .. } => false,
        };
        assert_eq!(plugins.problems.iter().filter(is_wrong).count(), commands.len() + names.len());
    }

    #[test]
    fn a_missing_folder_is_a_problem_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let plugins = discover(folder.path());
        assert!(plugins.problems[0].to_string().starts_with("cannot read plugin folder"));
    }

    #[test]
    fn shipped_manifests_are_valid() {
        for text in SHIPPED {
            let manifest = Manifest::parse(text).unwrap();
            assert!(manifest.name.as_str().starts_with("Disbatch::Plugin::"));
            assert!(manifest.unknown_keys.is_empty());
        }
    }
}
