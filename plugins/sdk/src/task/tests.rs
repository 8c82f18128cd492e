use std::collections::BTreeMap;

use super::*;
use crate::control;

#[test]
fn a_task_is_committed_under_the_name_of_its_attempt() {
    let line = r#"{"task":{},"env":{"DISBATCH_COMMIT":"6b0003bb686c8275d8013333.1"}}"#;
    let task = Task::brought(serde_json::from_str(line).unwrap(), Control::default()).unwrap();
    let expected = json!({ "_id": "6b0003bb686c8275d8013333.1", "status": 3 });
    assert_eq!(task.commit_document(3).unwrap(), expected);
    let error = task.commit_document(0).unwrap_err();
    assert_eq!(error.to_string(), "status must be a positive integer, got 0");
    let task: Task = "{}".parse().unwrap();
    let error = task.commit_document(1).unwrap_err();
    assert!(error.to_string().starts_with("the task cannot be committed: its manifest"), "{error}");
}

/// What a runner reads when `work` is done with an empty task.
fn sent(work: impl FnOnce(&mut Task)) -> Vec<Value> {
    let mut task: Task = "{}".parse().unwrap();
    let (control, reader) = control::tests::connected();
    // A pipe does not hold much.
    let heard = std::thread::spawn(move || io::read_to_string(reader).unwrap());
    task.control = control;
    work(&mut task);
    drop(task);
    let text = heard.join().unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_task_document_is_understood() {
    let task: Task = r#"{"_id":{"$oid":"6b0003bb686c8275d8013333"},"params":{"n":[1,2]},"status":0,
            "queue":{"$oid":"6b0003bb686c8275d70dc2f1"},"ctime":{"$date":"2026-11-20T08:24:27.344Z"}}"#
        .parse()
        .unwrap();
    assert_eq!(task.id(), "6b0003bb686c8275d8013333");
    assert_eq!(task.queue(), "6b0003bb686c8275d70dc2f1");
    assert_eq!(task.params(), &json!({ "n": [1, 2] }));
    assert_eq!(task.param::<Vec<u8>>("n").unwrap(), [1, 2]);
    assert_eq!(task.document()["ctime"]["$date"], "2026-11-20T08:24:27.344Z");
}

#[test]
fn little_is_needed_to_try_a_plugin() {
    let task: Task = r#"{"parameters":{"a":1}}"#.parse().unwrap();
    assert_eq!((task.id(), task.queue()), ("", ""));
    assert_eq!(task.params(), &json!({ "a": 1 }));
    let task: Task = r#"{"_id":"mine"}"#.parse().unwrap();
    assert_eq!((task.id(), task.params()), ("mine", &Value::Null));
}

#[test]
fn without_a_line_the_environment_tells() {
    let task: Task = "{}".parse().unwrap();
    assert_eq!(task.variable("PATH"), std::env::var("PATH").ok());
    assert_eq!(task.variable("DISBATCH_NO_SUCH_VARIABLE"), None);
    assert_eq!(task.work_dir(), std::path::Path::new("."));
}

#[test]
fn a_wrong_task_says_what_is_wrong() {
    let error = |text: &str| text.parse::<Task>().unwrap_err().to_string();
    assert_eq!(error("5"), "cannot read the task: must be an object, got 5");
    assert_eq!(error(""), "cannot read the task: EOF while parsing a value at line 1 column 0");
}

#[test]
fn a_wrong_parameter_is_named() {
    let task: Task = r#"{"params":{"n":-1,"null":null}}"#.parse().unwrap();
    let error = |name| task.param::<u8>(name).unwrap_err().to_string();
    assert_eq!(error("m"), "params.m is missing");
    assert_eq!(error("n"), "params.n is wrong: invalid value: integer `-1`, expected u8");
    assert_eq!(error("null"), "params.null is wrong: invalid type: null, expected u8");
    assert_eq!(task.param::<Option<u8>>("null").unwrap(), None);
}

#[test]
fn secure_parameters_are_shown_in_no_message() {
    let task: Task =
        r#"{"params":{"a":1},"secure_params":{"password":"horse","null":null,"n":1234}}"#.parse().unwrap();
    assert_eq!(task.secure_param::<String>("password").unwrap(), "horse");
    assert_eq!(task.secure_param::<Option<String>>("null").unwrap(), None);
    assert_eq!(task.secure_params().get("n"), Some(&json!(1234)));
    assert_eq!(task.secure_params().names().collect::<Vec<_>>(), ["n", "null", "password"]);
    let wrong = task.secure_param::<Vec<u8>>("password").unwrap_err().to_string();
    assert!(wrong.starts_with("secure_params.password is no ") && !wrong.contains("horse"), "{wrong}");
    let missing = task.secure_param::<u16>("token").unwrap_err().to_string();
    assert_eq!(missing, "secure_params.token is missing");
    assert_eq!(task.document(), &json!({"params": {"a": 1}}));
    let shown = format!("{task:?} {:?}", task.secure_params());
    assert!(!shown.contains("horse") && !shown.contains("1234"), "{shown}");
    let without: Task = "{}".parse().unwrap();
    assert!(without.secure_params().is_empty());
}

#[test]
fn progress_is_clamped_and_partial() {
    let lines = sent(|task| {
        task.progress(12.5, "reading");
        task.progress(250.0, "");
        task.progress(None, "waiting");
        task.progress(f64::NAN, "");
    });
    assert_eq!(
        lines,
        [
            json!({ "progress": { "percent": 12.5, "message": "reading" } }),
            json!({ "progress": { "percent": 100.0 } }),
            json!({ "progress": { "message": "waiting" } }),
        ]
    );
}

#[test]
fn only_what_can_be_stored_is_sent() {
    let lines = sent(|task| {
        task.set_status(7).unwrap();
        task.set_result(BTreeMap::from([("n", 1)])).unwrap();
        task.report(json!({ "task_id": { "$oid": "6b0003bb686c8275d8013333" } })).unwrap();
        let error = task.set_status(0).unwrap_err();
        assert_eq!(error.to_string(), "status must be a positive integer, got 0");
        let error = task.set_result([1]).unwrap_err();
        assert_eq!(error.to_string(), "result must be an object");
        let error = task.report("text").unwrap_err();
        assert_eq!(error.to_string(), "report must be an object");
        let error = task.set_result(json!({ "a": "x".repeat(MAX_RESULT_BYTES) })).unwrap_err();
        assert_eq!(error.to_string(), "result must have at most 1048576 bytes, got 1048584");
    });
    assert_eq!(
        lines,
        [
            json!({ "status": 7 }),
            json!({ "result": { "n": 1 } }),
            json!({ "report": { "task_id": { "$oid": "6b0003bb686c8275d8013333" } } }),
        ]
    );
}

#[test]
fn long_text_of_a_batch_is_in_lines_that_the_runner_takes() {
    // Characters of one to four bytes, and such as are longer as JSON.
    let text = format!("a{}{}", "ü€🦀".repeat(100_000), "\u{1}\n\"".repeat(400_000));
    let lines = sent(|task| {
        task.is_one_of(true);
        task.print(&text);
        task.print_error(&text);
    });
    assert!(lines.iter().all(|line| line.to_string().len() < 2 * 1024 * 1024));
    for stream in ["stdout", "stderr"] {
        let whole: String = lines.iter().filter_map(|line| line[stream].as_str()).collect();
        assert!(whole == text, "{stream}: {} of {} bytes", whole.len(), text.len());
    }
}

#[test]
fn storage_is_any_value_of_limited_size() {
    let lines = sent(|task| {
        task.save_storage([1, 2]).unwrap();
        task.save_storage(Value::Null).unwrap();
        let error = task.save_storage("x".repeat(MAX_STORAGE_BYTES)).unwrap_err();
        assert_eq!(error.to_string(), "storage must have at most 1048576 bytes, got 1048578");
    });
    assert_eq!(lines, [json!({ "storage": [1, 2] }), json!({ "storage": null })]);
}

#[test]
fn without_a_schedule_nothing_is_known_of_earlier_runs() {
    let task: Task = "{}".parse().unwrap();
    assert_eq!((task.storage(), task.last_success_start()), (&Value::Null, None));
    let line = r#"{"task":{"storage":[7]},"env":{"LAST_SUCCESS_START":"2026-11-20T08:24:27Z",
            "LAST_SUCCESS_FINISH":""}}"#;
    let parts = serde_json::from_str(line).unwrap();
    let task = Task::brought(parts, crate::control::Control::default()).unwrap();
    assert_eq!(task.storage(), &json!([7]));
    assert_eq!(task.last_success_start().as_deref(), Some("2026-11-20T08:24:27Z"));
    assert_eq!(task.last_success_finish(), None);
}

#[test]
fn a_question_has_what_was_said_of_it() {
    let lines = sent(|task| {
        task.ask(&Question::new("Go?"));
        let question = Question::new("Go?").form(json!({ "type": "object" })).unwrap();
        task.ask(&question.who(["ann"]).within(60.0).or_continue());
    });
    let whole = json!({
        "title": "Go?", "form": { "type": "object" }, "who": ["ann"], "deadline": 60.0, "on_deadline": "continue",
    });
    assert_eq!(lines, [json!({ "await": { "title": "Go?" } }), json!({ "await": whole })]);
}
