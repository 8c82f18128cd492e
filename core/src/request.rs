//! What clients ask for, as JSON, and what it must be: single values, and with these the options of tasks, as `POST /tasks` has them, without
//! their dots. What is wrong is said with the name of the option or parameter.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use bson::{Bson, DateTime, Document};
use disbatch_wire::liberal::{Flag, Text, integer, is_unset};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fair::check_group;
use crate::gates::{AfterFailed, AfterWhen, LockRequest, MOST_AFTER};
use crate::model::{FILES, LONGEST_STEP_NAME, MOST_STEPS, Step, TaskFiles, TaskId, to_bson};
use crate::tags::{self, TAGS};
use crate::task::{StartAt, TaskOptions};

/// Longer times (ten years) are mistakes.
const LONGEST_SECONDS: f64 = 315_360_000.0;

/// The last second of the year 9999. What is beyond is no time in seconds.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// Something that cannot be taken as it was given. Begins with its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

pub fn wrong(name: &str, expected: &str) -> Invalid {
    Invalid(format!("{name} must be {expected}"))
}

pub fn flag(name: &str, value: &Value) -> Result<bool, Invalid> {
    let read = Flag::deserialize(value).map(|Flag(flag)| flag);
    read.map_err(|error| Invalid(format!("{name} {error}")))
}

pub fn text(name: &str, value: &Value) -> Result<String, Invalid> {
    let read = Text::deserialize(value).map(|Text(text)| text);
    read.map_err(|error| Invalid(format!("{name} {error}")))
}

/// A number, or text that is one.
fn written(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None, // Nothing else is a number.
    }
}

/// A number from `least` on.
pub fn number(name: &str, value: &Value, least: f64) -> Result<f64, Invalid> {
    let fits = |number: &f64| (least..=LONGEST_SECONDS).contains(number);
    written(value)
        .filter(fits)
        .ok_or_else(|| wrong(name, &format!("a number from {least} to {LONGEST_SECONDS}")))
}

pub fn seconds(name: &str, value: &Value) -> Result<Duration, Invalid> {
    let wrong = || wrong(name, &format!("seconds from 0 to {LONGEST_SECONDS}"));
    let seconds = number(name, value, 0.0).map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

pub fn some_seconds(name: &str, value: &Value) -> Result<Duration, Invalid> {
    let given = seconds(name, value)?;
    if given.is_zero() { Err(wrong(name, "more than 0 seconds")) } else { Ok(given) }
}

pub fn positive(name: &str, value: &Value) -> Result<i64, Invalid> {
    whole(name, value, 1..=1_000_000)
}

fn whole(name: &str, value: &Value, range: RangeInclusive<i64>) -> Result<i64, Invalid> {
    let given = integer(value).filter(|n| !value.is_boolean() && range.contains(n));
    given.ok_or_else(|| wrong(name, &format!("an integer from {} to {}", range.start(), range.end())))
}

/// A point in time: ISO 8601, UTC unless it has a zone, or seconds since 1970.
pub fn time(name: &str, value: &Value) -> Result<DateTime, Invalid> {
    let seconds = written(value).filter(|seconds| (0.0..=LAST_SECOND).contains(seconds));
    #[expect(clippy::cast_possible_truncation, reason = "checked: at most the year 9999")]
    let at = seconds.map(|seconds| DateTime::from_millis((seconds * 1000.0) as i64));
    let at = at.or_else(|| iso_time(value.as_str()?.trim()));
    at.ok_or_else(|| wrong(name, "a time as 2026-11-20T08:24:27Z, or in seconds since 1970"))
}

fn iso_time(text: &str) -> Option<DateTime> {
    let text = text.replacen(' ', "T", 1);
    // Fields of forms leave out the zone, and seconds that are 0.
    ["", "Z", ":00Z"].iter().find_map(|rest| DateTime::parse_rfc3339_str(format!("{text}{rest}")).ok())
}

pub fn word<'a>(name: &str, value: &Value, words: &[&'a str]) -> Result<&'a str, Invalid> {
    let found = value.as_str().and_then(|text| words.iter().find(|word| **word == text));
    found.copied().ok_or_else(|| {
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        wrong(name, &quoted.join(" or "))
    })
}

/// What texts are separated by, where they are one text.
pub const SEPARATORS: [char; 3] = [',', '\n', '\r'];

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None, // Nothing else is text.
    }
}

/// The texts of an array, or of text with commas or line breaks between them.
pub fn list(value: &Value) -> Option<Vec<String>> {
    if let Value::Array(texts) = value {
        return texts.iter().map(as_text).collect();
    }
    let text = as_text(value)?;
    let texts = text.split(SEPARATORS).map(str::trim).filter(|text| !text.is_empty());
    Some(texts.map(str::to_owned).collect())
}

pub fn tags(name: &str, value: &Value) -> Result<Vec<String>, Invalid> {
    let texts = list(value).ok_or_else(|| wrong(name, "an array of texts, or text with commas between them"));
    tags::checked(texts?).map_err(|error| Invalid(format!("{name}{error}")))
}

pub fn group(name: &str, value: &Value) -> Result<String, Invalid> {
    let given = as_text(value).unwrap_or_default();
    check_group(&given).map_err(|error| wrong(name, &error))?;
    Ok(given)
}

pub fn priority(name: &str, value: &Value) -> Result<i64, Invalid> {
    whole(name, value, -1_000..=1_000)
}

/// How long to wait between attempts: an object of `base`, `factor`, `max` and `jitter`, all optional.
pub fn backoff(name: &str, value: &Value) -> Result<Document, Invalid> {
    let part = |key: &str, value: &Value| {
        let number = number(&format!("{name}.{key}"), value, 0.0)?;
        if key == "jitter" && number > 1.0 {
            return Err(wrong(&format!("{name}.{key}"), "a number from 0 to 1"));
        }
        Ok(Bson::Double(number))
    };
    parts(name, value, &["base", "factor", "max", "jitter"], part)
}

pub fn parts(
    name: &str,
    value: &Value,
    known: &[&str],
    part: impl Fn(&str, &Value) -> Result<Bson, Invalid>,
) -> Result<Document, Invalid> {
    let expected = || wrong(name, &format!("an object with any of {}", known.join(", ")));
    let Value::Object(object) = value else { return Err(expected()) };
    if object.is_empty() || object.keys().any(|key| !known.contains(&key.as_str())) {
        return Err(expected());
    }
    object
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| Ok((key.clone(), part(key, value)?)))
        .collect()
}

/// Sees to it that the keys of an object of parameters can be stored: the Perl driver refuses those with a dot, and so do Perl clients expect
/// it.
pub fn check_keys(object: &Map<String, Value>) -> Result<(), Invalid> {
    for (key, value) in object {
        if key.is_empty() || key.contains(['.', '\0']) {
            return Err(Invalid(format!(
                "'params' has the key {}: keys must not be empty or contain a dot",
                Value::from(key.as_str())
            )));
        }
        check_value(value)?;
    }
    Ok(())
}

pub fn check_value(value: &Value) -> Result<(), Invalid> {
    match value {
        Value::Object(object) => check_keys(object),
        Value::Array(items) => items.iter().try_for_each(check_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

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

pub fn names() -> BTreeSet<String> {
    let names = RefCell::new(BTreeSet::new());
    let note = |name: &str| {
        names.borrow_mut().insert(name.to_owned());
        None
    };
    let _without_any = options(note);
    names.into_inner()
}

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
    let id = |text: String| {
        let id = text.parse::<TaskId>().map_err(|error| Invalid(format!(".after: {error}")))?;
        if known.insert(id) { Ok(id) } else { Err(Invalid(format!(".after names the task {id} twice"))) }
    };
    texts.into_iter().map(id).collect()
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
    let given = given.as_object().ok_or_else(|| wrong_step(&format!("[{index}]"), "an object"))?;
    if let Some(unknown) = given.keys().find(|key| !["name", "plugin", "params"].contains(&key.as_str())) {
        let known = "a step has name, plugin and params";
        return Err(Invalid(format!(".steps[{index}].{unknown} is unknown: {known}")));
    }
    let fields = given.iter().filter(|(_, value)| !is_unset(value));
    let fields: Document = fields.map(|(name, value)| (name.clone(), to_bson(value))).collect();
    if fields.get("name").is_some_and(|name| !name.as_str().is_some_and(is_name)) {
        let expected = format!("text of 1 to {LONGEST_STEP_NAME} characters, without control characters");
        return Err(wrong_step(&format!("[{index}].name"), &expected));
    }
    let step = Step::stored(&fields, index).map_err(|why| Invalid(format!(".steps[{index}].{why}")))?;
    if let Some(Value::Object(params)) = given.get("params") {
        check_keys(params).map_err(|error| Invalid(format!(".steps[{index}]: {error}")))?;
    }
    Ok(step)
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_STEP_NAME).contains(&name.chars().count()) && !name.contains(char::is_control)
}

fn wrong_step(at: &str, expected: &str) -> Invalid {
    Invalid(format!(".steps{at} must be {expected}"))
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_iso_or_epoch() {
        let at = DateTime::from_millis(1_795_163_067_000);
        for same in [
            json!("2026-11-20T08:24:27Z"),
            json!("2026-11-20T08:24:27"),
            json!("2026-11-20 08:24:27"),
            json!("2026-11-20T09:24:27+01:00"),
            json!(1_795_163_067),
            json!("1795163067"),
        ] {
            assert_eq!(time(".run_at", &same).unwrap(), at, "{same}");
        }
        for no in [json!("soon"), json!(1e15), json!(-1), json!(null), json!(true), json!("20.11.2026")] {
            let error = time(".run_at", &no).unwrap_err();
            assert!(error.to_string().starts_with(".run_at must be a time"), "{no}: {error}");
        }
    }

    #[test]
    fn numbers_may_be_text() {
        assert_eq!(seconds("s", &json!("1.5")).unwrap(), Duration::from_millis(1500));
        assert_eq!(positive("n", &json!("3")).unwrap(), 3);
        assert!(flag("f", &json!("1")).unwrap() && !flag("f", &json!(false)).unwrap());
        for no in [json!(-1), json!("x"), json!(1e12), json!(null), json!([1])] {
            assert!(seconds("s", &no).unwrap_err().to_string().starts_with("s must be seconds"), "{no}");
        }
        for no in [json!(0), json!(1.5), json!(true), json!("")] {
            assert!(positive("n", &no).is_err(), "{no}");
        }
        assert!(some_seconds("s", &json!(0)).is_err());
        assert!(flag("f", &json!("yes")).is_err() && flag("f", &json!(2)).is_err());
    }

    #[test]
    fn words_and_text_are_checked() {
        assert_eq!(word("sort", &json!("fifo"), &["fifo", "lifo"]).unwrap(), "fifo");
        let error = word("sort", &json!("up"), &["fifo", "lifo"]).unwrap_err();
        assert_eq!(error.to_string(), "sort must be \"fifo\" or \"lifo\"");
        assert_eq!(text("k", &json!(7)).unwrap(), "7");
        for no in [json!(""), json!("x".repeat(201)), json!({}), json!("a\0")] {
            assert_eq!(text("k", &no).unwrap_err().to_string(), "k must be text of 1 to 200 characters");
        }
    }

    #[test]
    fn a_backoff_has_known_parts() {
        let of = |value| backoff("b", &value).map_err(|error| error.to_string());
        assert_eq!(of(json!({"base": 2, "jitter": 0})), Ok(doc! { "base": 2.0, "jitter": 0.0 }));
        for no in [json!({}), json!({"bases": 1}), json!(1), json!("x")] {
            assert_eq!(of(no).unwrap_err(), "b must be an object with any of base, factor, max, jitter");
        }
        assert_eq!(of(json!({"jitter": 2})).unwrap_err(), "b.jitter must be a number from 0 to 1");
        assert!(of(json!({"base": -1})).unwrap_err().starts_with("b.base must be a number from 0"));
    }

    #[test]
    fn groups_and_priorities_are_checked() {
        assert_eq!((priority("p", &json!("-1000")).unwrap(), priority("p", &json!(7)).unwrap()), (-1000, 7));
        assert!(priority("p", &json!(1.5)).is_err() && priority("p", &json!("high")).is_err());
        assert_eq!(group("g", &json!(7)).unwrap(), "7");
        assert_eq!(
            group("g", &json!("a\nb")).unwrap_err().to_string(),
            "g must be text without control characters"
        );
    }

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
