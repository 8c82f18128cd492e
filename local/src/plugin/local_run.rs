//! `disbatch plugin run FOLDER`

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use disbatch_cli::args::RunOnce;
use disbatch_cli::input;
use disbatch_cli::output::say;
use disbatch_cli::status;
use disbatch_core::config::Config;
use disbatch_core::json::to_strict;
use disbatch_core::output::StreamName;
use disbatch_core::plugin::{Engine, Manifest, ProgramType};
use disbatch_core::text::percent;
use disbatch_dtr::local::{self, Given, Rehearsal, Rehearsed, Word};
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::check;

/// Runs a plugin as a runner does, shows what it says, and tells what would come of its task.
pub async fn run(options: &RunOnce, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    let folder = check::absolute(&options.folder)?;
    let manifest = manifest(&folder)?;
    possible(&manifest)?;
    let params = params(options.params.as_deref(), &manifest)?;
    let secure_params =
        options.secure_params_file.as_deref().map(input::secure_params).transpose()?.flatten();
    // A plugin may be told where the configuration is, so there is one as long as it runs.
    let (config, _kept) = configuration(folder, config)?;
    let given = Given::Params(params);
    let timeout = options.timeout;
    let rehearsal =
        Rehearsal { config, plugin: manifest.name, given, secure_params, files: None, timeout, keep: None };
    let ended = local::run(rehearsal, show).await.context("cannot run the plugin here")?;
    tell(&ended);
    Ok(ExitCode::from(status::exit_code(ended.status)))
}

fn manifest(folder: &Path) -> anyhow::Result<Manifest> {
    let path = folder.join("plugin.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Manifest::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Whether all that the plugin needs can be had without a database.
pub fn possible(manifest: &Manifest) -> anyhow::Result<()> {
    if manifest.engine == Engine::Http {
        bail!("a web service calls a DCI back, and there is none here: try it with `disbatch dev`");
    }
    if manifest.commits {
        bail!(
            "a plugin that commits ends its task in the database, and there is none here: try it with `disbatch dev`"
        );
    }
    match manifest.program_type() {
        Some(ProgramType::Mongo | ProgramType::Handoff) => {
            bail!(
                "a program of this type works with the database, and there is none here: try it with `disbatch dev`"
            )
        }
        Some(ProgramType::Default | ProgramType::Nomongo) | None => Ok(()),
    }
}

/// What is given, else what forms begin with.
fn params(given: Option<&str>, manifest: &Manifest) -> anyhow::Result<Map<String, Value>> {
    let Some(text) = given else {
        return Ok(manifest.template.clone().map(|template| template.params).unwrap_or_default());
    };
    match serde_json::from_str(&to_strict(text)) {
        Ok(Value::Object(params)) => Ok(params),
        Ok(_) => bail!("--params must be a JSON object"),
        Err(error) => bail!("--params must be a JSON object: {error}"),
    }
}

/// The configuration of a node that has this plugin: the one that is given, or one with nothing else in it.
fn configuration(folder: PathBuf, given: Option<&Path>) -> anyhow::Result<(Config, Option<TempDir>)> {
    if let Some(path) = given {
        let mut config = Config::load(path)?;
        config.plugin_dirs.insert(0, folder);
        return Ok((config, None));
    }
    let own = tempfile::tempdir().context("cannot make a folder for the configuration")?;
    let path = own.path().join("config.json");
    fs::write(&path, check::configuration(&folder)).context("cannot write a configuration")?;
    Ok((Config::load(&path)?, Some(own)))
}

/// Shows what the plugin says: its output where it writes it, and all else on standard error.
fn show(word: Word) {
    match word {
        Word::Output(StreamName::Stdout, bytes) => write(&mut std::io::stdout().lock(), &bytes),
        Word::Output(StreamName::Stderr, bytes) => write(&mut std::io::stderr().lock(), &bytes),
        Word::LeftOut(stream, bytes) => {
            say(&format!("[{bytes} bytes of {} came too fast to be shown]", stream.as_str()));
        }
        Word::Progress(progress) => say(&format!("progress: {}", in_words(&progress))),
        Word::Storage(storage) => say(&format!("storage: {storage}")),
        Word::Report(report) => say(&format!("report: {report}")),
    }
}

/// Nobody need read it.
fn write(target: &mut impl Write, bytes: &[u8]) {
    let _nobody_reads = target.write_all(bytes).and_then(|()| target.flush());
}

fn in_words(progress: &Value) -> String {
    let percent = progress.get("percent").and_then(Value::as_f64).map(|so_far| percent(so_far, 1));
    let message = progress.get("message").and_then(Value::as_str).map(str::to_owned);
    percent.into_iter().chain(message).collect::<Vec<_>>().join(" ")
}

/// Tells what would come of the task.
fn tell(ended: &Rehearsed) {
    if let Some(result) = &ended.result {
        say(&format!("result: {result}"));
    }
    if let Some(exit) = &ended.exit {
        say(&format!("exit: {exit}"));
    }
    let note = ended.note.as_ref().map_or(String::new(), |note| format!(": {note}"));
    say(&format!("status: {}, {}{note}", ended.status, status::word(ended.status)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(value: Value) -> Manifest {
        Manifest::from_value(value).unwrap()
    }

    #[test]
    fn parameters_are_given_or_those_of_the_template() {
        let plugin = manifest(json!({ "name": "A", "command": ["a"], "template": { "params": { "n": 1 } } }));
        let of = |text| params(text, &plugin).map(Value::Object).map_err(|error| error.to_string());
        assert_eq!(of(None), Ok(json!({ "n": 1 })));
        assert_eq!(of(Some("{ \"n\": 2, }")), Ok(json!({ "n": 2 })));
        assert!(of(Some("[1]")).unwrap_err().starts_with("--params must be a JSON object"));
        assert!(of(Some("{")).unwrap_err().starts_with("--params must be a JSON object: "));
    }

    #[test]
    fn what_needs_a_database_is_said() {
        for (value, is_possible) in [
            (json!({ "name": "A", "command": ["a"] }), true),
            (json!({ "name": "A", "engine": "perl" }), true),
            (json!({ "name": "A", "engine": "program", "program": { "type": "nomongo" } }), true),
            (json!({ "name": "A", "engine": "program", "program": { "type": "mongo" } }), false),
            (json!({ "name": "A", "engine": "http" }), false),
            (json!({ "name": "A", "command": ["a"], "commits": true }), false),
        ] {
            assert_eq!(possible(&manifest(value.clone())).is_ok(), is_possible, "{value}");
        }
    }

    #[test]
    fn progress_is_a_number_and_words() {
        assert_eq!(in_words(&json!({ "percent": 50.0, "message": "half" })), "50 % half");
        assert_eq!(in_words(&json!({ "message": "half" })), "half");
    }
}
