//! What may be asked for when tasks are created, and how they are named.

use std::path::PathBuf;

use clap::Args;
use disbatch_values::json::to_strict;
use disbatch_values::secure::SecureParams;
use disbatch_wire::liberal::{Seconds, When};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::{self, given};
use crate::args::files::{self, SetAndVersion};
use crate::input;

/// Options of new tasks. What is not given is left to the queue.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "New tasks")]
pub struct TaskOptions {
    /// Start after this time: 90, 90s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", conflicts_with = "run_at")]
    pub delay: Option<Seconds>,
    /// Do not start before: ISO 8601 or seconds since 1970
    #[arg(long, value_name = "WHEN")]
    pub run_at: Option<When>,
    /// End an attempt that takes longer
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Seconds>,
    /// End the task if it goes on beyond: ISO 8601 or seconds since 1970
    #[arg(long, value_name = "WHEN")]
    pub deadline: Option<When>,
    /// Time for the plugin between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME")]
    pub grace: Option<Seconds>,
    /// Try a task that fails so often at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_attempts: Option<u32>,
    /// Refuse the task while another with the same key waits or runs in the queue
    #[arg(long, value_name = "KEY")]
    pub unique: Option<String>,
    /// Do these one after the other, in one folder: a JSON array of objects with name, plugin and params, which may all be
    /// left out; or @FILE
    #[arg(long, value_name = "JSON", value_parser = steps)]
    pub steps: Option<Value>,
    /// Give each the files of this set before it begins: NAME for its newest version by then, or NAME@VERSION
    #[arg(long, value_name = "NAME", value_parser = files::set_and_version)]
    #[serde(skip)]
    pub files_in: Option<SetAndVersion>,
    /// Only those files whose paths match this pattern, as *.csv or data/**; may be repeated
    #[arg(long, value_name = "GLOB", requires = "files_in")]
    #[serde(skip)]
    pub files_in_match: Vec<String>,
    /// Store the files that each leaves as a new version of this set, if it succeeds
    #[arg(long, value_name = "NAME", value_parser = files::set_name)]
    #[serde(skip)]
    pub files_out: Option<String>,
    /// Only those files whose paths match this pattern; without it, those that are new or have changed; may be repeated
    #[arg(long, value_name = "GLOB", requires = "files_out")]
    #[serde(skip)]
    pub files_out_match: Vec<String>,
    /// Run them after these tasks; may be repeated
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = parse_id)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// What those must have come to: succeeded (all of them), finished (all), or any (one has succeeded)
    #[arg(long, value_name = "WHEN", value_parser = ["succeeded", "finished", "any"])]
    pub after_when: Option<String>,
    /// What becomes of them when one of those fails: they are cancelled, or wait until it is tried again
    #[arg(long, value_name = "WHAT", value_parser = ["cancel", "wait"])]
    pub after_failed: Option<String>,
    /// Run each after the one before
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub chain: bool,
    /// Hold this lock while they run: NAME alone, NAME/shared together with others, NAME/3 for one of three places;
    /// may be repeated
    #[arg(long = "lock", value_name = "NAME", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<String>,
    /// Whose tasks these are, as tenant/user: whose turn it is in a fair queue
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Let those with a higher one go first, in queues that go by priority or are fair: -1000 to 1000
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1000..=1000))]
    pub priority: Option<i64>,
    /// Find them by this tag, as customer=7; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// For whom they are, in a queue that is nobody's
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Create an array in place of a task: one task for each number of 0-9999%50 or 1,3,5-9:2, or for each value of a JSON
    /// array
    #[arg(long, value_name = "ITEMS")]
    pub array: Option<String>,
    /// The parameter that says which element of the array it is [default: item]
    #[arg(long, value_name = "NAME", requires = "array")]
    pub array_key: Option<String>,
    /// Run so many elements of the array at once at most
    #[arg(long, value_name = "N", requires = "array", value_parser = clap::value_parser!(u32).range(1..))]
    pub array_cap: Option<u32>,
    /// Run one more task with these parameters, a JSON object, when all elements of the array have ended
    #[arg(long, value_name = "JSON", requires = "array", value_parser = object)]
    pub array_final: Option<Value>,
    /// What they must have come to for that: succeeded or finished
    #[arg(long, value_name = "WHEN", requires = "array_final", value_parser = ["succeeded", "finished"])]
    pub array_final_when: Option<String>,
    /// Create the tasks once, however often this request is repeated with the same key
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Give the plugin the JSON object in this file, which is encrypted and shown to nobody; `-` is standard input
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub secure_params_file: Option<PathBuf>,
    /// What that file has.
    #[arg(skip)]
    #[serde(skip)]
    pub secure_params: Option<SecureParams>,
}

impl TaskOptions {
    /// The same with what is in the file of secure parameters. To be called once, as it may be standard input.
    pub fn with_file(mut self) -> anyhow::Result<Self> {
        if let Some(path) = &self.secure_params_file {
            self.secure_params = input::secure_params(path)?;
        }
        Ok(self)
    }

    /// The options as keys of the request, which start with a dot.
    pub fn fields(&self) -> serde_json::Result<Map<String, Value>> {
        let mut fields = api::fields(self)?;
        let secure = self.secure_params.as_ref().map(|params| params.value().clone());
        fields.extend(given([("files", self.files()), ("secure_params", secure)]));
        Ok(fields.into_iter().map(|(name, value)| (format!(".{name}"), value)).collect())
    }

    fn files(&self) -> Option<Value> {
        let part = |name: &str, version: Option<i64>, patterns: &[String]| {
            let patterns = (!patterns.is_empty()).then(|| Value::from(patterns));
            let version = version.map(Value::from);
            Value::Object(given([("name", Some(name.into())), ("version", version), ("patterns", patterns)]))
        };
        let input = self.files_in.as_ref().map(|set| part(&set.name, set.version, &self.files_in_match));
        let output = self.files_out.as_ref().map(|name| part(name, None, &self.files_out_match));
        let both = given([("input", input), ("output", output)]);
        (!both.is_empty()).then_some(Value::Object(both))
    }
}

/// An array in JSON, or in a file that may have comments, as configurations have.
fn steps(text: &str) -> Result<Value, String> {
    let read = match text.strip_prefix('@') {
        None => text.to_owned(),
        Some(path) => {
            let read =
                std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
            to_strict(&read)
        }
    };
    match serde_json::from_str(&read) {
        Ok(steps @ Value::Array(_)) => Ok(steps),
        Ok(_) => Err("expected a JSON array of steps".to_owned()),
        Err(error) => Err(format!("expected a JSON array of steps: {error}")),
    }
}

fn object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(format!("expected a JSON object: {error}")),
    }
}

#[derive(Debug, Clone, Args)]
pub struct Tasks {
    /// Ids of tasks
    #[arg(required = true, value_name = "ID", value_parser = parse_id)]
    pub ids: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct OneTask {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub id: String,
}

/// Reads an id of a task, an array or a bulk job: it is checked before anything is sent.
pub fn parse_id(text: &str) -> Result<String, String> {
    if text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("an id has 24 hexadecimal digits, as create-task prints it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_given_is_sent() {
        assert!(TaskOptions::default().fields().unwrap().is_empty());
        let options = TaskOptions {
            delay: Some(Seconds(json!(300))),
            deadline: Some("1795163066".parse().unwrap()),
            run_at: Some("2026-11-20T08:24:27Z".parse().unwrap()),
            max_attempts: Some(3),
            group: Some("acme/ann".into()),
            priority: Some(-5),
            after: vec!["6b0003bb686c8275d8013333".into()],
            locks: vec!["db/3".into(), "mail".into()],
            tags: vec!["a, b".into()],
            ..TaskOptions::default()
        };
        let expected = json!({".delay": 300, ".deadline": 1_795_163_066, ".max_attempts": 3, ".group": "acme/ann",
            ".priority": -5,
            ".run_at": "2026-11-20T08:24:27Z", ".after": ["6b0003bb686c8275d8013333"],
            ".locks": ["db/3", "mail"], ".tags": ["a, b"]});
        assert_eq!(Value::Object(options.fields().unwrap()), expected);
    }

    #[test]
    fn an_array_is_sent_as_it_is_given() {
        let options = TaskOptions {
            array: Some("0-9%2".into()),
            array_final: Some(object("{\"sum\":1}").unwrap()),
            array_final_when: Some("finished".into()),
            ..TaskOptions::default()
        };
        let expected =
            json!({".array": "0-9%2", ".array_final": {"sum": 1}, ".array_final_when": "finished"});
        assert_eq!(Value::Object(options.fields().unwrap()), expected);
        assert!(object("[]").is_err() && object("{").is_err());
    }

    #[test]
    fn file_sets_are_told_apart_from_their_versions() {
        let options = TaskOptions {
            files_in: Some(files::set_and_version("data@3").unwrap()),
            files_in_match: vec!["*.csv".into()],
            files_out: Some("result".into()),
            ..TaskOptions::default()
        };
        let expected = json!({".files": {
            "input": {"name": "data", "version": 3, "patterns": ["*.csv"]}, "output": {"name": "result"},
        }});
        assert_eq!(Value::Object(options.fields().unwrap()), expected);
        let input =
            TaskOptions { files_in: Some(files::set_and_version("data").unwrap()), ..TaskOptions::default() };
        assert_eq!(Value::Object(input.fields().unwrap()), json!({".files": {"input": {"name": "data"}}}));
    }

    #[test]
    fn steps_are_given_as_they_are_or_in_a_file() {
        let expected = json!([{"name": "get"}, {}]);
        assert_eq!(steps(r#"[{"name":"get"},{}]"#).unwrap(), expected);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps.json");
        std::fs::write(&path, "[ # first\n {\"name\": \"get\"},\n {},\n]\n").unwrap();
        assert_eq!(steps(&format!("@{}", path.display())).unwrap(), expected);
        for wrong in ["{}", "", "nope", "@/nonexistent"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
        let options = TaskOptions { steps: Some(expected.clone()), ..TaskOptions::default() };
        assert_eq!(Value::Object(options.fields().unwrap()), json!({".steps": expected}));
    }

    #[test]
    fn an_id_has_24_digits() {
        assert_eq!(parse_id("6B0003bb686c8275d8013333").as_deref(), Ok("6b0003bb686c8275d8013333"));
        for text in [
            "",
            "6b0003bb686c8275d801333",
            "6b0003bb686c8275d80133333",
            "6b0003bb686c8275d801333g",
            "../../x",
        ] {
            assert!(parse_id(text).is_err(), "{text}");
        }
    }
}
