//! `disbatch plugin check FOLDER`

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use disbatch_cli::output::{print, say};
use disbatch_cli::status::FAILED;
use disbatch_core::config::Config;
use disbatch_core::plugin::{Engine, Manifest, Plugin, Plugins, Problem};
use disbatch_core::schema::Schema;
use serde_json::json;

use super::schema;

/// So much of a program is looked at.
const BEGINNING: u64 = 512;

/// How programs begin that the kernel runs by itself.
const ELF: &[u8] = b"\x7fELF";

/// What was found in a folder.
#[derive(Debug, Default)]
struct Findings {
    right: Vec<String>,
    /// What is odd, and need not be wrong.
    odd: Vec<String>,
    /// What keeps it from running, or from doing what it says.
    wrong: Vec<String>,
}

/// Says what is right and what is wrong with a plugin.
pub fn run(folder: &Path) -> anyhow::Result<ExitCode> {
    let found = look(folder)?;
    for line in &found.right {
        print(&format!("{line}\n"))?;
    }
    for line in &found.odd {
        say(&format!("odd: {line}"));
    }
    for line in &found.wrong {
        say(&format!("wrong: {line}"));
    }
    Ok(if found.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// The text of a configuration that knows this folder, an absolute path, and nothing else, and where everything may be run that there is.
pub fn configuration(folder: &Path) -> String {
    let config = json!({
        "mongohost": "mongodb://127.0.0.1:1", "database": "none", "plugin_dirs": [folder.to_string_lossy()],
        "engines": { "container": {}, "http": {}, "kubernetes": {} },
    });
    config.to_string()
}

/// A folder by a path that holds wherever somebody goes.
pub fn absolute(folder: &Path) -> anyhow::Result<PathBuf> {
    folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))
}

fn look(folder: &Path) -> anyhow::Result<Findings> {
    let folder = absolute(folder)?;
    let config = Config::parse(&configuration(&folder), &folder.join("config.json"));
    let config = config.context("cannot make a configuration")?;
    let mut found = Findings::default();
    let path = folder.join("plugin.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest = match Manifest::parse(&text) {
        Ok(manifest) => manifest,
        Err(error) => {
            found.wrong.push(format!("plugin.json: {error}"));
            return Ok(found);
        }
    };
    found.right.push(format!("plugin.json: {}, run by the engine {}", manifest.name, manifest.engine));
    let unknown = manifest.unknown_keys.iter().map(|key| format!("plugin.json: nothing reads {key}"));
    found.odd.extend(unknown);
    look_at_program(&manifest, &folder, &config, &mut found);
    look_at_params(&manifest, &mut found);
    Ok(found)
}

fn look_at_program(manifest: &Manifest, folder: &Path, config: &Config, found: &mut Findings) {
    let plugins = Plugins::discover(config);
    if let Some(plugin) = plugins.get(&manifest.name) {
        return look_at_plugin(plugin, folder, found);
    }
    let is_about = |problem: &&Problem| match problem {
        Problem::Program { name, .. } | Problem::Engine { name, .. } => *name == manifest.name,
        Problem::Folder { .. } | Problem::Manifest { .. } | Problem::Duplicate { .. } => false,
    };
    let why = plugins
        .problems
        .iter()
        .find(is_about)
        .map_or_else(|| format!("plugin {} is not found", manifest.name), ToString::to_string);
    match manifest.engine.adapter() {
        // It may well be on the nodes.
        Some(adapter) => found.odd.push(format!("{adapter} is not installed here: {why}")),
        None if folder.join("Cargo.toml").is_file() => {
            found.wrong.push(format!("{why}: build it with `cargo build --release` in {}", folder.display()));
        }
        None => found.wrong.push(why),
    }
}

fn look_at_plugin(plugin: &Plugin, folder: &Path, found: &mut Findings) {
    let program = plugin.program.display();
    match plugin.manifest.engine {
        Engine::Exec | Engine::Program => match what_is_wrong_with(&plugin.program) {
            None => found.right.push(format!("program: {program}")),
            Some(why) => found.wrong.push(format!("program {program}: {why}")),
        },
        Engine::Perl => look_at_module(plugin, folder, found),
        Engine::Container | Engine::Http | Engine::Kubernetes => {
            found.right.push(format!("adapter: {program}"));
        }
    }
}

/// Whether the kernel knows how to run a program. Says why not.
fn what_is_wrong_with(program: &Path) -> Option<String> {
    let mut beginning = Vec::new();
    let read = fs::File::open(program).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    if read.is_err() || beginning.starts_with(ELF) {
        return None; // What may be run need not be readable.
    }
    let Some(rest) = beginning.strip_prefix(b"#!") else {
        return Some("it is no program, and has no line that begins with #!".to_owned());
    };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    if line.ends_with('\r') {
        return Some(
            "its first line ends with a carriage return: save it with the line ends of Unix".to_owned(),
        );
    }
    let mut words = line.split_whitespace();
    let interpreter = Path::new(words.next().unwrap_or_default());
    if !interpreter.is_absolute() || !interpreter.is_file() {
        return Some(format!("its interpreter {} is not there", interpreter.display()));
    }
    if interpreter.file_name() != Some("env".as_ref()) {
        return None;
    }
    let wanted = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(wanted).is_file());
    (!is_there).then(|| format!("its interpreter {wanted} is not in PATH"))
}

fn look_at_module(plugin: &Plugin, folder: &Path, found: &mut Findings) {
    let own = plugin.manifest.perl.clone().unwrap_or_default();
    let class = own.class.unwrap_or_else(|| plugin.manifest.name.to_string());
    let file = format!("{}.pm", class.replace("::", "/"));
    let at = own.lib.iter().map(|lib| folder.join(lib).join(&file)).find(|path| path.is_file());
    match at {
        Some(path) => found.right.push(format!("module: {}", path.display())),
        None => {
            found.odd.push(format!("{file} is in no folder of perl.lib: it has to be where Perl finds it"))
        }
    }
}

fn look_at_params(manifest: &Manifest, found: &mut Findings) {
    let Some(params) = &manifest.params else {
        found.odd.push("plugin.json: without params, nobody is told which parameters it takes".to_owned());
        return;
    };
    let mut mistakes = schema::mistakes(params);
    if mistakes.is_empty()
        && let Err(error) = Schema::compile(params)
    {
        mistakes.push(format!("params: {error}"));
    }
    if mistakes.is_empty() {
        found.right.push("params: a schema".to_owned());
    }
    found.wrong.extend(mistakes);
    if let Some(template) = &manifest.template {
        found.wrong.extend(schema::mistakes_in_template(params, &template.params));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What is wrong with a plugin whose program is this.
    fn wrong(manifest: &str, program: Option<&str>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plugin.json"), manifest).unwrap();
        if let Some(text) = program {
            let path = folder.path().join("run");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        look(folder.path()).unwrap().wrong
    }

    #[test]
    fn programs_that_cannot_be_run_are_found() {
        let manifest = r#"{ "name": "A", "command": ["./run"] }"#;
        assert_eq!(wrong(manifest, Some("#!/bin/sh\n")), Vec::<String>::new());
        assert_eq!(wrong(manifest, Some("#!/usr/bin/env -S X=1 sh\n")), Vec::<String>::new());
        for (program, part) in [
            (None, "program './run' is not an executable file"),
            (Some("echo\n"), "has no line that begins with #!"),
            (Some("#!/bin/sh\r\n"), "carriage return"),
            (Some("#!/no/such\n"), "its interpreter /no/such is not there"),
            (Some("#!/usr/bin/env no-such-language\n"), "no-such-language is not in PATH"),
        ] {
            let found = wrong(manifest, program);
            assert!(found.len() == 1 && found[0].contains(part), "{program:?}: {found:?}");
        }
    }

    #[test]
    fn manifests_and_schemas_that_are_wrong_are_found() {
        for (manifest, part) in [
            ("{", "plugin.json: "),
            (
                r#"{ "name": "A", "engine": "http", "http": { "uri": 5 } }"#,
                "plugin.json: http.uri: unknown field",
            ),
            (r#"{ "name": "A", "engine": "http", "params": { "type": "array" } }"#, "params.type: "),
        ] {
            let found = wrong(manifest, None);
            assert!(found.len() == 1 && found[0].starts_with(part), "{manifest}: {found:?}");
        }
    }

    #[test]
    fn what_is_not_here_may_be_on_the_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = r#"{ "name": "A", "engine": "perl", "odd": 1, "params": {} }"#;
        fs::write(folder.path().join("plugin.json"), manifest).unwrap();
        let found = look(folder.path()).unwrap();
        assert!(found.odd.iter().any(|line| line == "plugin.json: nothing reads odd"), "{found:?}");
        assert!(found.right.iter().any(|line| line == "plugin.json: A, run by the engine perl"), "{found:?}");
    }
}
