//! The configuration of a node that a run is replayed on: one that is given, or one with nothing but the plugin.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use disbatch_core::config::Config;
use disbatch_core::model::PluginName;
use disbatch_core::plugin::{Manifest, Plugin, Plugins};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::bundle::Run;
use super::secrets::Secrets;
use crate::plugin::check;

/// A node that is none.
pub struct Node {
    pub config: Config,
    /// The plugin that was given, if it is one.
    given: Option<PluginName>,
    /// What is in it is needed as long as a plugin runs.
    folder: TempDir,
}

impl Node {
    /// One that has the plugins of the run. `with`: another version of one; `given`: the configuration of a node.
    pub fn for_replay(
        run: &Run,
        (with, given): (Option<&Path>, Option<&Path>),
        secrets: &Secrets,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for the configuration")?;
        let path = |name: &str| folder.path().join(name);
        let names = run.plugins()?;
        let (plugin, named) = match (with, &names[..]) {
            (None, _) => (None, None),
            (Some(with), names) if with.is_dir() => {
                let (folder, name) = plugin_of(with, names)?;
                (Some(folder), name)
            }
            (Some(with), [name]) => {
                let program = check::absolute(with)?;
                (Some(write_plugin(&path("with"), (name, run), Some(&program))?), Some(name.clone()))
            }
            (Some(_), _) => bail!("the steps have several plugins: --with takes the folder of one of them"),
        };
        let mut config = match given {
            Some(given) => Config::load(given)?,
            None => own(&folder, secrets)?,
        };
        config.plugin_dirs.splice(0..0, plugin);
        let plugins = Plugins::discover(&config);
        for (number, name) in names.iter().enumerate().filter(|(_, name)| named.as_ref() != Some(name)) {
            let version = run.version(name).and_then(|version| plugins.get(&name.at(&version)));
            if let Some(version) = version.and_then(|version| version.folder.clone()) {
                // What is found first has the name alone.
                config.plugin_dirs.insert(0, version);
            } else if given.is_none() && plugins.get(name).is_none() && manifest_of(name, run).is_some() {
                // If it was recorded on this host, it is where it was.
                config.plugin_dirs.push(match recorded_folder(name, run) {
                    Some(folder) => folder,
                    None => write_plugin(&path(&format!("recorded-{number}")), (name, run), None)?,
                });
            }
        }
        Ok(Self { config, given: named, folder })
    }

    /// Whether this plugin was given, in whatever version.
    pub fn is_given(&self, plugin: &str) -> bool {
        self.given.as_ref().is_some_and(|given| given.as_str() == plugin)
    }

    /// Whether the folder of a plugin was made here, with nothing in it but a manifest.
    pub fn has_made(&self, plugin: &Plugin) -> bool {
        plugin.folder.as_ref().is_some_and(|folder| folder.starts_with(self.folder.path()))
    }
}

/// The plugin's folder as it was recorded, if there is one here.
fn recorded_folder(name: &PluginName, run: &Run) -> Option<PathBuf> {
    let files = &run.recorded(name)?.files;
    let manifest =
        files.iter().map(|file| Path::new(&file.path)).find(|path| path.ends_with("plugin.json"))?;
    manifest.parent().filter(|_| manifest.is_file()).map(Path::to_owned)
}

/// A folder with a version of a plugin, which is returned, or with folders of several.
fn plugin_of(folder: &Path, names: &[PluginName]) -> anyhow::Result<(PathBuf, Option<PluginName>)> {
    let folder = check::absolute(folder)?;
    let path = folder.join("plugin.json");
    if !path.is_file() {
        return has_some_of(&folder, names).map(|()| (folder, None));
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest = Manifest::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    if !names.contains(&manifest.name) {
        bail!(
            "{} is the plugin {}, and the bundle is one of {}",
            folder.display(),
            manifest.name,
            words(names)
        );
    }
    Ok((folder, Some(manifest.name)))
}

/// Whether one of the plugins is in a folder of plugins.
fn has_some_of(folder: &Path, names: &[PluginName]) -> anyhow::Result<()> {
    let config = Config::parse(&check::configuration(folder), &folder.join("config.json"))?;
    let plugins = Plugins::discover(&config);
    let is_there = |plugin: &PluginName| {
        let found = plugins.get(plugin).is_some_and(|plugin| plugin.folder.is_some());
        found && names.iter().any(|name| name.as_str() == plugin.base())
    };
    if plugins.names().chain(plugins.versions()).any(is_there) {
        return Ok(());
    }
    let problems: String = plugins.problems.iter().map(|problem| format!("\n{problem}")).collect();
    bail!("{} has no plugin.json, nor a folder with one of {}{problems}", folder.display(), words(names))
}

fn words(names: &[PluginName]) -> String {
    names.iter().map(PluginName::as_str).collect::<Vec<_>>().join(", ")
}

/// A configuration with nothing in it but secrets.
fn own(folder: &TempDir, secrets: &Secrets) -> anyhow::Result<Config> {
    let mut config: Map<String, Value> = serde_json::from_str(&check::configuration(folder.path()))?;
    config.insert("plugin_dirs".to_owned(), json!([]));
    if !secrets.variables.is_empty() {
        let place = folder.path().join("secrets");
        fs::create_dir(&place)?;
        let mut environment = Map::new();
        for (number, (variable, value)) in secrets.variables.iter().enumerate() {
            let file = place.join(number.to_string());
            fs::write(&file, format!("{value}\n")).context("cannot write a secret for the plugin")?;
            fs::set_permissions(&file, Permissions::from_mode(0o600))?;
            environment.insert(number.to_string(), json!(variable));
        }
        config.insert("secrets_dir".to_owned(), json!(place));
        config.insert("secret_environment".to_owned(), Value::Object(environment));
    }
    let path = folder.path().join("config.json");
    fs::write(&path, Value::Object(config).to_string()).context("cannot write a configuration")?;
    Ok(Config::load(&path)?)
}

fn manifest_of<'a>(name: &PluginName, run: &'a Run) -> Option<&'a Map<String, Value>> {
    run.recorded(name)?.manifest.as_object()
}

/// Writes the manifest that was recorded into a folder, with the program in its place: the one that is given, or the recorded one.
fn write_plugin(
    folder: &Path,
    (name, run): (&PluginName, &Run),
    program: Option<&Path>,
) -> anyhow::Result<PathBuf> {
    let mut manifest = manifest_of(name, run).cloned().unwrap_or_else(|| {
        let name = ("name".to_owned(), json!(name.as_str()));
        Map::from_iter([name])
    });
    let recorded = run.recorded(name).and_then(|recorded| recorded.files.first());
    let program = program.map(Path::to_owned).or_else(|| recorded.map(|file| PathBuf::from(&file.path)));
    let is_exec = manifest.get("engine").is_none_or(|engine| engine == "exec");
    if let (Some(program), true) = (&program, is_exec) {
        let rest = manifest.get("command").and_then(Value::as_array).and_then(|words| words.get(1..));
        let words = [json!(program)].into_iter().chain(rest.unwrap_or_default().iter().cloned());
        manifest.insert("command".to_owned(), words.collect());
        // What the parameters say would be run in its place.
        manifest.remove("command_in_params");
    }
    fs::create_dir(folder)?;
    fs::write(folder.join("plugin.json"), Value::Object(manifest).to_string())?;
    Ok(folder.to_owned())
}
