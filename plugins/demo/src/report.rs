//! The document that the plugin leaves in the collection `reports`.

use disbatch_plugin::Task;
use serde_json::{Value, json};

/// The plugin's own version, as in its manifest.
const VERSION: &str = "1.0.0";

/// What happened, and when in epoch seconds.
#[derive(Debug)]
pub struct Run {
    /// `params.commands`, written out.
    pub commands: Value,
    /// How many errors there were.
    pub errors: u32,
    /// The message of the failure that ended the task.
    pub failure: Option<&'static str>,
    /// When it started.
    pub started: u64,
    /// When it ended.
    pub completed: u64,
}

/// Whether the task wants a report: not if `params.noreport` is true in Perl's sense.
pub fn wanted(task: &Task) -> bool {
    match &task.params()["noreport"] {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty() || text == "0",
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// The report of a run, with the keys that Disbatch 4 writes.
pub fn report(task: &Task, run: &Run) -> Value {
    let mut report = json!({
        "commands": run.commands,
        "completed": run.completed,
        "counter": task.params()["counter"],
        "errors": run.errors,
        "queue_id": task.document()["queue"],
        "started": run.started,
        "status": if run.failure.is_none() { "SUCCESS" } else { "FAILED" },
        "task_id": task.document()["_id"],
        "version": VERSION,
    });
    if let Some(failure) = run.failure {
        report["error"] = Value::from(format!("Task failed: {failure}\n"));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noreport_is_true_as_perl_sees_it() {
        let wanted =
            |value: &str| wanted(&format!("{{\"params\":{{\"noreport\":{value}}}}}").parse().unwrap());
        for value in ["null", "false", "0", "0.0", "\"\"", "\"0\""] {
            assert!(wanted(value), "{value}");
        }
        for value in ["true", "1", "-0.5", "\"no\"", "\"0.0\"", "[]", "{}"] {
            assert!(!wanted(value), "{value}");
        }
    }

    #[test]
    fn no_params_want_a_report_too() {
        assert!(super::wanted(&"{\"params\":null}".parse().unwrap()));
    }

    #[test]
    fn the_manifest_has_the_same_version() {
        let manifest: Value = serde_json::from_str(include_str!("../plugin.json")).unwrap();
        assert_eq!(manifest["version"], VERSION);
        assert_eq!(manifest["command"][0], env!("CARGO_PKG_NAME"));
    }
}
