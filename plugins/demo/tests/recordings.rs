//! Compares the program with what Disbatch 4.103 stored for the same tasks.

#[cfg(test)]
#[path = "../../sdk/tests/support/runner.rs"]
mod runner;

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};
    use std::process::{Command, Stdio};

    use serde_json::{Map, Value, json};

    use super::runner::{PluginOutput, run};

    const DEMO: &str = env!("CARGO_BIN_EXE_disbatch-plugin-demo");
    const DOCUMENTS: &str = include_str!("../../../tests/fixtures/documents.json");
    const TASKS: &str = include_str!("../../../tests/fixtures/demo_tasks.jsonl");
    const MIB: usize = 1024 * 1024;

    /// Canonical Extended JSON as the relaxed one that a runner hands to plugins.
    fn relaxed(value: &Value) -> Value {
        match value {
            Value::Object(object) => match object.get("$numberInt").and_then(Value::as_str) {
                Some(number) => json!(number.parse::<i32>().unwrap()),
                None => object.iter().map(|(key, value)| (key.clone(), relaxed(value))).collect(),
            },
            Value::Array(values) => values.iter().map(relaxed).collect(),
            other => other.clone(),
        }
    }

    fn documents(collection: &str) -> Value {
        relaxed(&serde_json::from_str::<Value>(DOCUMENTS).unwrap()[collection])
    }

    /// The status and the outputs that a runner stores.
    fn stored(outcome: &PluginOutput) -> (i32, Value, Value) {
        let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
        let status = if outcome.exit.success() { 1 } else { 2 };
        (status, text(&outcome.stdout), text(&outcome.stderr))
    }

    fn demo(params: Value) -> PluginOutput {
        run(Command::new(DEMO), &json!({ "_id": { "$oid": "6b0004f4686c827f5a609575" }, "params": params }))
    }

    fn report(outcome: &PluginOutput) -> &Map<String, Value> {
        match outcome.control.as_slice() {
            [line] => line["report"].as_object().unwrap(),
            other => panic!("one report expected, got {other:?}"),
        }
    }

    #[test]
    fn statuses_and_outputs_are_the_recorded_ones() {
        for line in TASKS.lines() {
            let task: Value = serde_json::from_str(line).unwrap();
            let outcome = run(Command::new(DEMO), &task);
            let expected =
                (if task["status"] == 1 { 1 } else { 2 }, task["stdout"].clone(), task["stderr"].clone());
            assert_eq!(stored(&outcome), expected, "{line}");
        }
    }

    #[test]
    fn reports_are_the_recorded_ones() {
        let tasks = documents("tasks");
        let tasks: Vec<&Value> =
            ["succeeded_failed", "gfs"].iter().flat_map(|name| tasks[name].as_array().unwrap()).collect();
        let recorded = documents("reports");
        assert_eq!(recorded.as_array().unwrap().len(), tasks.len());
        for recorded in recorded.as_array().unwrap() {
            let task = tasks.iter().find(|task| task["_id"] == recorded["task_id"]).unwrap();
            let mut ours = report(&run(Command::new(DEMO), task)).clone();
            let mut theirs = recorded.as_object().unwrap().clone();
            theirs.remove("_id");
            assert!(ours["started"].as_u64() <= ours["completed"].as_u64());
            for key in ["started", "completed"] {
                assert!(ours[key].as_u64() >= theirs[key].as_u64(), "{ours:?}");
                ours[key] = theirs[key].clone();
            }
            // The plugin's own version, which is not the Perl plugin's.
            assert!(ours["version"].is_string() && theirs["version"].is_string());
            ours["version"] = theirs["version"].clone();
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn noreport_means_none() {
        let tasks = documents("tasks");
        let task = &tasks["from_form_queue"][0];
        let outcome = run(Command::new(DEMO), task);
        assert_eq!(stored(&outcome), (1, task["stdout"].clone(), task["stderr"].clone()));
        assert_eq!(outcome.control, [] as [Value; 0]);
    }

    #[test]
    fn the_order_of_the_letters_does_not_matter() {
        let expected = demo(json!({ "commands": "abc" }));
        assert_eq!(expected.stdout, "This is command 'a' for apple.\n");
        assert_eq!(expected.stderr, "This is command 'b' for banana.\nThis is command 'c' for cry.\n");
        for commands in ["cab", "*", "c*baab"] {
            assert_eq!(stored(&demo(json!({ "commands": commands }))), stored(&expected), "{commands}");
        }
        assert_eq!(report(&demo(json!({ "commands": "*" })))["commands"], "abc");
        assert_eq!(report(&expected)["errors"], 2);
    }

    #[test]
    fn no_commands_succeed_silently() {
        for params in [json!({}), json!(null), json!({ "commands": "" }), json!({ "commands": "xyz" })] {
            let outcome = demo(params.clone());
            assert_eq!(stored(&outcome), (1, Value::Null, Value::Null), "{params}");
            assert_eq!(report(&outcome)["errors"], 0);
        }
        assert_eq!(report(&demo(json!({})))["commands"], Value::Null);
        assert_eq!(report(&demo(json!({ "counter": 5 })))["counter"], 5);
    }

    #[test]
    fn wrong_commands_are_refused() {
        let outcome = demo(json!({ "commands": ["a"] }));
        assert_eq!(outcome.exit.code(), Some(1));
        assert_eq!(outcome.stderr, "params.commands must be text, got [\"a\"]\n");
    }

    #[test]
    fn outputs_are_filled_to_the_byte() {
        let outcome = demo(json!({ "commands": "eaBcb" }));
        // Not assert_eq, which would print all of it.
        let full =
            |line: &str, letter: &str, mebibytes| format!("{line}\n{}", letter.repeat(mebibytes * MIB));
        assert!(outcome.stdout == full("This is command 'a' for apple.", "e", 15));
        let errors = full("This is command 'b' for banana.", "B", 7) + "This is command 'c' for cry.\n";
        assert!(outcome.stderr == errors);
    }

    #[test]
    fn a_closed_output_is_a_failure_without_a_panic() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let mut child =
            Command::new(DEMO).stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(br#"{"params":{"commands":"a"}}"#).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "cannot write the output: Broken pipe (os error 32)\n"
        );
    }
}
