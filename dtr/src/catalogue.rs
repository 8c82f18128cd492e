//! The plugins of this host, looked for once and again when something has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::model::PluginName;
use disbatch_core::plugin::{Manifest, Plugin, Plugins};

/// What was seen is believed for so long.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// What was found, and the state of the files that say so.
#[derive(Debug)]
pub struct Installed {
    plugins: Plugins,
    seen: Vec<(Option<Mark>, PathBuf)>,
    /// What the database defines besides.
    workers: Vec<Manifest>,
    looked: Instant,
    believed_for: Duration,
}

/// Tells a file that was changed or replaced: device, number, length, and the time of the last change in seconds and
/// nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark(u64, u64, u64, i64, i64);

impl Installed {
    pub fn discover(config: &Config) -> Self {
        // In this order: what changes in between counts as changed later.
        let looked = Instant::now();
        let with_mark = |path: PathBuf| (mark(&path), path);
        let seen = sources(config).into_iter().map(with_mark).collect();
        let (plugins, workers) = (Plugins::discover(config), Vec::new());
        Self { plugins, seen, workers, looked, believed_for: BELIEVED_FOR }
    }

    /// The database defines these plugins for the next task, and no others.
    pub fn define(&mut self, workers: &[Manifest]) {
        if self.workers != workers {
            self.workers = workers.to_vec();
            self.plugins.with_workers(workers);
        }
    }

    /// Looks again if a plugin with this name is not known, or not for certain, or if something has changed. That is asked once a
    /// second at most: where tasks are short, it would be much of what they cost.
    pub fn refresh(&mut self, name: &PluginName, config: &Config) {
        let is_unknown = self.plugins.get(name).is_none();
        if !is_unknown && self.looked.elapsed() < self.believed_for {
            return;
        }
        self.looked = Instant::now();
        if is_unknown || self.seen.iter().any(|(seen, path)| mark(path) != *seen) {
            let workers = std::mem::take(&mut self.workers);
            let mut again = Self::discover(config);
            again.plugins.remember(&self.plugins);
            again.believed_for = self.believed_for;
            *self = again;
            self.define(&workers);
        }
    }

    pub fn get(&self, name: &PluginName) -> Option<&Arc<Plugin>> {
        self.plugins.get_to_run(name)
    }

    /// What looks like plugins and cannot run, as lines that begin with a line break.
    pub fn problems(&self) -> String {
        self.plugins.problems.iter().map(|problem| format!("\n{problem}")).collect()
    }
}

/// The folders and manifests that decide which plugins there are.
fn sources(config: &Config) -> Vec<PathBuf> {
    let base = config.path.parent().unwrap_or(Path::new("."));
    let mut sources = Vec::new();
    for folder in config.plugin_dirs.iter().map(|folder| base.join(folder)) {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        sources.extend(entries.flat_map(|entry| [entry.path(), entry.path().join("plugin.json")]));
        sources.push(folder.join("plugin.json"));
        sources.push(folder);
    }
    sources
}

fn mark(path: &Path) -> Option<Mark> {
    let found = fs::metadata(path).ok()?;
    Some(Mark(found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn install(folder: &Path, plugin: &str, argument: &str) {
        fs::create_dir_all(folder).unwrap();
        let program = folder.join("run.sh");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = format!(r#"{{"name":"{plugin}","command":["./run.sh","{argument}"]}}"#);
        fs::write(folder.join("plugin.json"), manifest).unwrap();
    }

    #[test]
    fn what_the_database_defines_holds_for_one_task() {
        let folder = tempfile::tempdir().unwrap();
        install(&folder.path().join("plugins/one"), "One", "1");
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let mut installed = Installed { believed_for: Duration::ZERO, ..Installed::discover(&config) };
        let worker = |name: &str| {
            let value = serde_json::json!({ "name": name, "command": ["/bin/sh", "-c"] });
            Manifest::from_value(value).unwrap()
        };
        let (one, two) = ("One".parse().unwrap(), "Two".parse().unwrap());
        installed.define(&[worker("One"), worker("Two")]);
        installed.refresh(&"Unknown".parse().unwrap(), &config);
        assert_eq!(installed.get(&one).unwrap().arguments, ["1"], "files come first");
        assert_eq!(installed.get(&two).unwrap().arguments, ["-c"], "looking again changes nothing");
        installed.define(&[]);
        assert!(installed.get(&two).is_none() && installed.get(&one).is_some());
        fs::write(folder.path().join("plugins/one/plugin.json"), "{").unwrap();
        installed.refresh(&one, &config);
        installed.define(&[worker("One"), worker("Two")]);
        assert!(installed.get(&one).is_none(), "its manifest cannot be read for now");
        assert!(installed.get(&two).is_some());
    }

    #[test]
    fn what_changes_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        install(&plugins.join("one"), "One", "1");
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let mut installed = Installed { believed_for: Duration::ZERO, ..Installed::discover(&config) };
        let mut arguments = |name: &str| {
            let name = name.parse().unwrap();
            installed.refresh(&name, &config);
            installed.get(&name).map(|plugin| plugin.arguments.concat())
        };
        assert_eq!(arguments("One").as_deref(), Some("1"));
        assert_eq!(arguments("Two"), None);
        install(&plugins.join("two"), "Two", "2");
        assert_eq!(arguments("Two").as_deref(), Some("2"));
        install(&plugins.join("one"), "One", "changed");
        assert_eq!(arguments("One").as_deref(), Some("changed"));
        fs::remove_file(plugins.join("one/plugin.json")).unwrap();
        assert_eq!(arguments("One"), None);
        fs::rename(plugins.join("two"), plugins.join("three")).unwrap();
        assert!(arguments("Two").is_some());
        fs::remove_dir_all(&plugins).unwrap();
        assert_eq!(arguments("Two"), None);
    }

    #[test]
    fn what_was_just_seen_is_believed_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        install(&plugins.join("one"), "One", "1");
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let long = Duration::from_secs(1000);
        let mut installed = Installed { believed_for: long, ..Installed::discover(&config) };
        install(&plugins.join("one"), "One", "changed");
        let mut arguments = |name: &str| {
            let name = name.parse().unwrap();
            installed.refresh(&name, &config);
            installed.get(&name).map(|plugin| plugin.arguments.concat())
        };
        assert_eq!(arguments("One").as_deref(), Some("1"));
        install(&plugins.join("two"), "Two", "2");
        assert_eq!(arguments("Two").as_deref(), Some("2"), "who is missing is looked for at once");
        assert_eq!(arguments("One").as_deref(), Some("changed"), "with everybody else");
    }
}
