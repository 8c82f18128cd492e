//! `disbatch replay BUNDLE`: runs an attempt of a task again as a runner does, and compares what comes out.

mod batch;
mod bundle;
mod columns;
mod compare;
mod node;
mod page;
mod report;
mod secrets;
mod sources;
mod summary;
mod verdict;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow};
use disbatch_cli::args::{ConnectionOptions, ReplayOptions};
use disbatch_cli::output::{Screen, print, say};
use disbatch_compare::{Masks, OtherVersion};
use disbatch_core::model::{PLUGIN_VERSION, PluginName};
use disbatch_core::plugin::Plugins;
use disbatch_core::private_folder::PREFIX;
use disbatch_dtr::local::{self, Earlier, Given, Prepared, Rehearsal};
use disbatch_wire::bundles::LARGEST_STREAM;
use serde_json::{Value, json};

use crate::plugin::local_run;
use bundle::Run;
use node::Node;

/// The exit status when something came out differently.
const DIFFERENT: u8 = 1;

/// Runs it again, or many. The exit status tells whether it came out the same.
pub async fn run(options: &ReplayOptions, connection: ConnectionOptions) -> anyhow::Result<ExitCode> {
    let config = connection.config.clone();
    match &options.bundles[..] {
        [bundle] if !options.is_many() => Box::pin(one(bundle, options, config.as_deref())).await,
        _ => Box::pin(batch::run(options, connection)).await,
    }
}

async fn one(bundle: &Path, options: &ReplayOptions, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    let run = bundle::read(bundle)?;
    let masks = Masks::new(&options.mask, &format!("{PREFIX}{}", run.bundle.task))?;
    let given_files = run.files()?;
    let needed = run.plugins()?;
    let given = secrets::given(&run.bundle.secrets, options.secrets.as_deref())?;
    let node = Node::for_replay(&run, (options.with.as_deref(), config), &given)?;
    let plugins = Plugins::discover(&node.config);
    let (mut other, mut changed) = (Vec::new(), run.recording.as_ref().map(|_| Vec::new()));
    for name in &needed {
        let found = plugins.get(name).ok_or_else(|| missing(name, &plugins))?;
        local_run::possible(&found.manifest)?;
        other.extend(compare::version(&run, name, found));
        let files = run.recorded(name).map(|recorded| compare::files(recorded, found, node.has_made(found)));
        changed = changed.zip(files).map(|(all, files)| [all, files].concat());
    }
    let rehearsal = Rehearsal {
        config: node.config.clone(),
        plugin: run.bundle.plugin.parse().unwrap_or_else(|_| needed[0].clone()),
        given: Given::Earlier(Box::new(earlier(&run, &plugins))),
        secure_params: given.secure_params,
        files: given_files,
        timeout: options.timeout,
        keep: None,
    };
    // The others were asked for.
    for OtherVersion { plugin, was, is } in other.iter().filter(|other| !node.is_given(&other.plugin)) {
        let is = is.as_ref().map_or_else(|| "one that says none".to_owned(), |is| format!("version {is}"));
        say(&format!(
            "version {was} of the plugin {plugin}, in which it ran, is not here: it is run by {is}"
        ));
    }
    if options.shell {
        return shell(rehearsal, options.keep);
    }
    let keep = if options.keep { Some(local::folder().context("cannot make a folder")?) } else { None };
    let rehearsal = Rehearsal { keep: keep.clone(), ..rehearsal };
    let (ended, output) =
        Box::pin(local::run_whole(rehearsal, LARGEST_STREAM)).await.context("cannot run the plugin here")?;
    let comparison = compare::compare(&run, (&ended, &output), &masks, (other, changed));
    if options.json {
        print(&format!("{:#}\n", with_folder(comparison.json(), keep.as_deref())))?;
    } else {
        print(&report::text(&run, &comparison, Screen::of_stdout()))?;
        if let Some(folder) = &keep {
            say(&format!("the private folder is {}", folder.display()));
        }
    }
    Ok(if comparison.is_same() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// As programs read it, with where the private folder is.
fn with_folder(mut comparison: Value, folder: Option<&Path>) -> Value {
    if let (Some(all), Some(folder)) = (comparison.as_object_mut(), folder) {
        all.insert("folder".to_owned(), json!(folder));
    }
    comparison
}

fn missing(plugin: &PluginName, plugins: &Plugins) -> anyhow::Error {
    let problems: String = plugins.problems.iter().map(|problem| format!("\n{problem}")).collect();
    anyhow!(
        "the plugin {plugin} is not here: give its folder or program by --with, or a node's --config{problems}"
    )
}

/// What the plugin is given. If a version was chosen for the task, that is the one of the plugin which runs it here.
fn earlier(run: &Run, plugins: &Plugins) -> Earlier {
    let mut task = run.task.clone();
    let plugin = run.bundle.plugin.parse().ok().and_then(|name| plugins.get(&name));
    let version = plugin.and_then(|plugin| plugin.manifest.version().ok().flatten());
    if task.remove(PLUGIN_VERSION).is_some() {
        task.extend(version.map(|version| (PLUGIN_VERSION.to_owned(), json!(version.as_str()))));
    }
    let variable = |name: &str| {
        let all =
            run.recording.as_ref().map(|recording| recording.environment.as_slice()).unwrap_or_default();
        all.iter().find(|variable| variable.name == name).and_then(|variable| variable.value.clone())
    };
    Earlier {
        task,
        queue: run.bundle.queue.as_object().cloned().unwrap_or_default(),
        node: run.bundle.node.clone(),
        attempt: run.bundle.attempt,
        last_success: ["LAST_SUCCESS_START", "LAST_SUCCESS_FINISH"].map(variable),
    }
}

/// What a shell needs of the one that it is started from.
const OWN: [&str; 3] = ["TERM", "LANG", "HOME"];

/// Starts it, and waits for its end. Its exit status is that of the shell.
fn shell(rehearsal: Rehearsal, keep: bool) -> anyhow::Result<ExitCode> {
    let folder = local::folder().context("cannot make a folder")?;
    let given = tempfile::tempdir().context("cannot make a folder for the input")?;
    let prepared = local::prepare(rehearsal, &folder).context("cannot make ready for the plugin")?;
    let Prepared { program, arguments, environment, input } = prepared;
    let stdin = given.path().join("stdin.json");
    fs::write(&stdin, &input).context("cannot write the input")?;
    let words: Vec<String> = arguments.iter().map(|word| format!(" {}", word.to_string_lossy())).collect();
    say(&format!("the plugin is run by: {}{} < {} 3>&2", program.display(), words.concat(), stdin.display()));
    let own = OWN.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(&shell);
    command.env_clear().envs(own).envs(environment).current_dir(&folder);
    let status = command.status().with_context(|| format!("cannot start {}", shell.to_string_lossy()))?;
    if keep {
        say(&format!("the private folder is {}", folder.display()));
    } else {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
