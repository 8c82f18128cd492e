//! The options of tasks, as `POST /tasks` has them, without their dots.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};

use disbatch_wire::liberal::is_unset;
use serde_json::{Map, Value};

use super::{
    Invalid, backoff, check_keys, flag, group, positive, priority, seconds, some_seconds, tags, text, time,
    word, wrong,
};
use crate::gates::{AfterFailed, AfterWhen, LockRequest, MOST_AFTER};
use crate::model::{
    FILES, LONGEST_STEP_NAME, MOST_STEPS, PluginName, Step, TaskFiles, TaskId, to_bson, to_document,
};
use crate::tags::TAGS;
use crate::task::{StartAt, TaskOptions};

/// Reads the options that `given` gives by their names. Those of secure parameters, and whose the tasks are, are for the caller.
pub fn options<'a>(given: impl Fn(&str) -> Option<Cow<'a, Value>>) -> Result<TaskOptions, Invalid> {
    let given = |name: &str| given(name).filter(|value| !is_unset(value));
    let start = match (given("run_at"), given("delay")) {
        (Some(_), Some(_)) => return Err(Invalid(".run_at and .delay exclude each other".to_owned())),
        (Some(at), None) => Some(StartAt::At(time(".run_at", &at)?)),
        (None, Some(delay)) => Some(StartAt::In(seconds(".delay", &delay)?)),
        (None, None) => None,
    };
    let (when, failed) = (AfterWhen::ALL.map(AfterWhen::as_str), AfterFailed::ALL.map(AfterFailed::as_str));
    let when = given("after_when").map(|value| word(".after_when", &value, &when)).transpose()?;
    let failed = given("after_failed").map(|value| word(".after_failed", &value, &failed)).transpose()?;
    Ok(TaskOptions {
        start,
        timeout: given("timeout").map(|value| some_seconds(".timeout", &value)).transpose()?,
        deadline: given("deadline").map(|value| time(".deadline", &value)).transpose()?,
        grace: given("grace").map(|value| seconds(".grace", &value)).transpose()?,
        max_attempts: given("max_attempts").map(|value| positive(".max_attempts", &value)).transpose()?,
        backoff: given("backoff").map(|value| backoff(".backoff", &value)).transpose()?,
        unique: given("unique").map(|value| text(".unique", &value)).transpose()?,
        group: given("group").map(|value| group(".group", &value)).transpose()?,
        priority: given("priority").map(|value| priority(".priority", &value)).transpose()?,
        tags: given(TAGS).map(|value| tags(".tags", &value)).transpose()?.unwrap_or_default(),
        after: given("after").map(|value| ids(&value)).transpose()?.unwrap_or_default(),
        after_when: when.and_then(AfterWhen::named).unwrap_or_default(),
        after_failed: failed.and_then(AfterFailed::named).unwrap_or_default(),
        chain: given("chain").map(|value| flag(".chain", &value)).transpose()?.unwrap_or_default(),
        locks: given("locks").map(|value| locks(&value)).transpose()?.unwrap_or_default(),
        steps: given("steps").map(|value| steps(&value)).transpose()?.unwrap_or_default(),
        files: given(FILES).map(|value| files(".files", &value)).transpose()?.flatten(),
        ..TaskOptions::default()
    })
}

/// The names of the options that are read.
pub fn names() -> BTreeSet<String> {
    let names = RefCell::new(BTreeSet::new());
    let note = |name: &str| {
        names.borrow_mut().insert(name.to_owned());
        None
    };
    let _without_any = options(note);
    names.into_inner()
}

/// The file sets that tasks take and leave, as an object that is called `name`.
pub fn files(name: &str, value: &Value) -> Result<Option<TaskFiles>, Invalid> {
    if !value.is_object() {
        return Err(wrong(name, "an object with input and output"));
    }
    TaskFiles::parse(&to_bson(value)).map_err(|why| Invalid(format!("{name}.{why}")))
}

/// An array of texts, or one text with commas or spaces between them.
fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |item: &Value| match item {
        Value::String(text) => Some(text.clone()),
        // As answers have ids.
        Value::Object(object) if object.len() == 1 => object.get("$oid")?.as_str().map(str::to_owned),
        _ => None, // Nothing else names anything.
    };
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::String(text) => {
            let parts = text.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty());
            Some(parts.map(str::to_owned).collect())
        }
        object @ Value::Object(_) => Some(vec![text(object)?]),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn ids(value: &Value) -> Result<Vec<TaskId>, Invalid> {
    let wrong = || Invalid(format!(".after must be 1 to {MOST_AFTER} ids of tasks"));
    let texts = texts(value).filter(|texts| (1..=MOST_AFTER).contains(&texts.len())).ok_or_else(wrong)?;
    let mut known = HashSet::new();
    let mut ids = Vec::with_capacity(texts.len());
    for text in texts {
        let id = text.parse::<TaskId>();
        let id = id.map_err(|error| Invalid(format!(".after: {error}")))?;
        if !known.insert(id) {
            return Err(Invalid(format!(".after names the task {id} twice")));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn locks(value: &Value) -> Result<Vec<LockRequest>, Invalid> {
    let wrong =
        || Invalid(".locks must be an array of names, as \"db\", \"db/shared\" or \"db/3\"".to_owned());
    let texts = texts(value).filter(|texts| !texts.is_empty()).ok_or_else(wrong)?;
    LockRequest::list(texts.iter().map(String::as_str)).map_err(|error| Invalid(format!(".locks: {error}")))
}

fn steps(value: &Value) -> Result<Vec<Step>, Invalid> {
    let given = value.as_array().filter(|steps| (1..=MOST_STEPS).contains(&steps.len()));
    let given = given.ok_or_else(|| wrong_step("", &format!("a JSON array of 1 to {MOST_STEPS} objects")))?;
    given.iter().enumerate().map(|(index, given)| step(index, given)).collect()
}

fn step(index: usize, given: &Value) -> Result<Step, Invalid> {
    let at = |key: &str| format!("[{index}]{key}");
    let given = given.as_object().ok_or_else(|| wrong_step(&at(""), "an object"))?;
    if let Some(unknown) = given.keys().find(|key| !["name", "plugin", "params"].contains(&key.as_str())) {
        let known = "a step has name, plugin and params";
        return Err(Invalid(format!(".steps{} is unknown: {known}", at(&format!(".{unknown}")))));
    }
    let field = |key: &str| given.get(key).filter(|value| !is_unset(value));
    let name = match field("name") {
        None => Step::default_name(index),
        Some(Value::String(name)) if is_name(name) => name.clone(),
        Some(_) => {
            let expected = format!("text of 1 to {LONGEST_STEP_NAME} characters, without control characters");
            return Err(wrong_step(&at(".name"), &expected));
        }
    };
    let plugin = match field("plugin") {
        None => None,
        Some(Value::String(name)) => {
            let plugin = name.parse::<PluginName>();
            Some(plugin.map_err(|error| Invalid(format!(".steps{}: {error}", at(".plugin"))))?)
        }
        Some(_) => return Err(wrong_step(&at(".plugin"), "text")),
    };
    let params = match field("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return Err(wrong_step(&at(".params"), "an object")),
    };
    check_keys(&params).map_err(|error| Invalid(format!(".steps{}: {error}", at(""))))?;
    Ok(Step { name, plugin, params: to_document(&params) })
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_STEP_NAME).contains(&name.chars().count()) && !name.contains(char::is_control)
}

fn wrong_step(at: &str, expected: &str) -> Invalid {
    Invalid(format!(".steps{at} must be {expected}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{Document, doc};
    use serde_json::json;

    use super::*;

    const ID: &str = "6b0003bb686c8275d8013333";
    const OTHER: &str = "6b0003bb686c8275d8013334";

    fn of(given: Value) -> Result<TaskOptions, String> {
        options(|name| given.get(name).map(Cow::Borrowed)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_and_an_empty_field_is_none() {
        let none = json!({
            "run_at": "", "unique": null, "pretty": 1, "after": "", "locks": null, "chain": "", "steps": null, "files": {},
        });
        assert_eq!(of(none).unwrap(), TaskOptions::default());
        let some = of(json!({"delay": "30", "timeout": 5, "max_attempts": "2", "unique": "k"}));
        let expected = TaskOptions {
            start: Some(StartAt::In(Duration::from_secs(30))),
            timeout: Some(Duration::from_secs(5)),
            max_attempts: Some(2),
            unique: Some("k".to_owned()),
            ..TaskOptions::default()
        };
        assert_eq!(some.unwrap(), expected);
        let turn = of(json!({"group": "acme/ann", "priority": "-7"})).unwrap();
        assert_eq!((turn.group.as_deref(), turn.priority), (Some("acme/ann"), Some(-7)));
    }

    #[test]
    fn what_tasks_wait_for_is_read_from_json_and_from_forms() {
        let expected = TaskOptions {
            after: vec![ID.parse().unwrap(), OTHER.parse().unwrap()],
            after_when: AfterWhen::Any,
            after_failed: AfterFailed::Wait,
            chain: true,
            locks: LockRequest::list(["a/3", "b"]).unwrap(),
            ..TaskOptions::default()
        };
        let json = json!({
            "after": [ID, { "$oid": OTHER }], "after_when": "any", "after_failed": "wait", "chain": true,
            "locks": ["b", "a/3"],
        });
        assert_eq!(of(json).unwrap(), expected);
        let form = json!({
            "after": format!("{ID}, {OTHER}"), "after_when": "any", "after_failed": "wait", "chain": "1",
            "locks": "b,a/3",
        });
        assert_eq!(of(form).unwrap(), expected);
    }

    #[test]
    fn steps_and_files_are_objects() {
        let step = |name: &str, plugin: Option<&str>, params: Document| Step {
            name: name.to_owned(),
            plugin: plugin.map(|plugin| plugin.parse().unwrap()),
            params,
        };
        let expected = vec![
            step("get", None, doc! {}),
            step("step 2", Some("My::Use"), doc! { "a": { "$b": 1 } }),
            step("step 3", None, doc! {}),
        ];
        let steps = json!([{ "name": "get" }, { "plugin": "My::Use", "params": { "a": { "$b": 1 } } }, {}]);
        assert_eq!(of(json!({ "steps": steps })).unwrap().steps, expected);
        let given = json!({ "input": { "name": "data", "version": 2 }, "output": { "name": "result", "patterns": ["*"] } });
        let expected = doc! {
            "input": { "name": "data", "version": 2_i64 }, "output": { "name": "result", "patterns": ["*"] },
        };
        assert_eq!(of(json!({ "files": given })).unwrap().files.unwrap().document(), expected);
        let theirs = json!({ "Fileset": { "Input": { "Name": "data", "Patterns": [] } } });
        assert!(of(json!({ "files": theirs })).unwrap().files.is_some());
    }

    #[test]
    fn mistakes_name_the_option() {
        let ids: Vec<String> = (0..1_001).map(|number| format!("{number:024x}")).collect();
        let wrong = [
            (json!({"run_at": "soon"}), ".run_at must be a time"),
            (json!({"run_at": 1, "delay": 1}), ".run_at and .delay exclude each other"),
            (json!({"delay": -1}), ".delay must be seconds from 0"),
            (json!({"timeout": 0}), ".timeout must be more than 0"),
            (json!({"deadline": []}), ".deadline must be a time"),
            (json!({"grace": "x"}), ".grace must be seconds"),
            (json!({"max_attempts": 0}), ".max_attempts must be an integer from 1"),
            (json!({"backoff": {"step": 1}}), ".backoff must be an object with any of"),
            (json!({"unique": {}}), ".unique must be text"),
            (json!({"group": "a//b"}), ".group must be parts with a slash between them"),
            (json!({"group": ["a"]}), ".group must be text of 1 to 200 characters"),
            (json!({"priority": 1001}), ".priority must be an integer from -1000 to 1000"),
            (json!({"priority": true}), ".priority must be an integer from -1000 to 1000"),
            (json!({"after": 5}), ".after must be 1 to 1000 ids of tasks"),
            (json!({"after": []}), ".after must be 1 to 1000 ids of tasks"),
            (json!({"after": ids}), ".after must be 1 to 1000 ids of tasks"),
            (json!({"after": ["x"]}), ".after: 'x' is not an id"),
            (json!({"after": [ID, ID]}), ".after names the task 6b0003bb686c8275d8013333 twice"),
            (json!({"after_when": "soon"}), ".after_when must be \"succeeded\" or \"finished\" or \"any\""),
            (json!({"after_failed": 1}), ".after_failed must be \"cancel\" or \"wait\""),
            (json!({"chain": "yes"}), ".chain must be true or false"),
            (json!({"locks": {}}), ".locks must be an array of names"),
            (json!({"locks": ["a/0"]}), ".locks: 'a/0' is no lock"),
            (json!({"locks": ["a", "a/2"]}), ".locks: the lock 'a' is named twice"),
            (json!({"locks": ["array:x"]}), ".locks: 'array:x' is no lock for you"),
        ];
        refused(&wrong);
    }

    #[test]
    fn mistakes_in_steps_and_files_name_their_place() {
        let (steps, long) = (vec![json!({}); 101], "x".repeat(101));
        let wrong = [
            (json!({"steps": []}), ".steps must be a JSON array of 1 to 100 objects"),
            (json!({"steps": steps}), ".steps must be a JSON array of 1 to 100 objects"),
            (json!({"steps": {}}), ".steps must be a JSON array of 1 to 100 objects"),
            (json!({"steps": "nope"}), ".steps must be a JSON array of 1 to 100 objects"),
            (json!({"steps": [1]}), ".steps[0] must be an object"),
            (
                json!({"steps": [{}, {"plugn": "x"}]}),
                ".steps[1].plugn is unknown: a step has name, plugin and params",
            ),
            (json!({"steps": [{"name": 7}]}), ".steps[0].name must be text of 1 to 100 characters"),
            (json!({"steps": [{"name": "a\nb"}]}), ".steps[0].name must be text of 1 to 100 characters"),
            (json!({"steps": [{"name": long}]}), ".steps[0].name must be text of 1 to 100 characters"),
            (json!({"steps": [{"plugin": "a b"}]}), ".steps[0].plugin: plugin value 'a b' must be"),
            (json!({"steps": [{"plugin": []}]}), ".steps[0].plugin must be text"),
            (json!({"steps": [{"params": [1]}]}), ".steps[0].params must be an object"),
            (json!({"steps": [{"params": {"a.b": 1}}]}), ".steps[0]: 'params' has the key \"a.b\""),
            (json!({"files": []}), ".files must be an object with input and output"),
            (json!({"files": "nope"}), ".files must be an object with input and output"),
            (json!({"files": {"in": {}}}), ".files.in is unknown"),
            (json!({"files": {"input": {}}}), ".files.input.name is missing"),
            (
                json!({"files": {"output": {"name": "../x"}}}),
                ".files.output.name: '../x' is no name of a file set",
            ),
            (
                json!({"files": {"input": {"name": "a", "patterns": ["a["]}}}),
                ".files.input.patterns: the pattern 'a['",
            ),
        ];
        refused(&wrong);
    }

    fn refused(wrong: &[(Value, &str)]) {
        for (given, message) in wrong {
            let error = of(given.clone()).unwrap_err();
            assert!(error.starts_with(message), "{given}: {error}");
            assert!(names().contains(given.as_object().unwrap().keys().next().unwrap()), "{given}");
        }
    }
}
