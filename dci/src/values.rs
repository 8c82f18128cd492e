//! Values that a client gives as JSON or as text of a form, and what they must be. What is wrong is said with the
//! name of the parameter.

use std::borrow::Cow;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use disbatch_core::fair::{MOST_CLASSES, MOST_WEIGHT, Scheme, check_group};
use disbatch_core::model::{BEGAN, LONGEST_KEPT, NodeSelector, Version};
use disbatch_core::rate::limit;
use disbatch_core::request::{self, Invalid, SEPARATORS};
pub use disbatch_core::request::{flag, number, positive, priority, seconds, some_seconds, text, time, word};
use disbatch_core::tags::{self, ANY_TAGS, TAGS, TagIndex};
use disbatch_core::task::long_ago;
use disbatch_core::text as odd;
pub use disbatch_wire::liberal::is_unset;
use disbatch_wire::options::field_names;
use disbatch_wire::seconds as span;
use serde_json::{Map, Value};

use crate::error::HttpError;
use crate::openapi::{Canary, Rate, Record, Retention, ShadowRule};
use crate::{json, legacy};

/// The parameters that say when tasks were made.
pub const CREATED: [&str; 2] = ["created_since", "created_until"];

/// A time, or how long ago it was, as `90s`, `5m`, `2h` and `7d`.
pub fn moment(name: &str, value: &Value, now: DateTime) -> Result<DateTime, HttpError> {
    // Without a unit it is a time.
    let age = value.as_str().map(str::trim).filter(|text| text.ends_with(['s', 'm', 'h', 'd']));
    let Some(age) = age.and_then(|text| span::parse(text).ok()) else { return Ok(time(name, value)?) };
    Ok(long_ago(now, age))
}

/// A parameter as text without the white space around it. None: it is not given, or empty.
pub fn trimmed(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, HttpError> {
    let given = match fields.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return Err(HttpError::bad_request(format!("{name} must be given once, as text"))),
    };
    Ok(Some(given).filter(|given| !given.is_empty()))
}

fn wrong(name: &str, expected: &str) -> HttpError {
    request::wrong(name, expected).into()
}

/// A value that is an object or a list. A form has it as text, which is read here if it is JSON.
pub fn object(value: &Value) -> Cow<'_, Value> {
    let read = value.as_str().and_then(|text| crate::allowance::json::<Value>(text).ok());
    read.filter(|read| read.is_object() || read.is_array()).map_or(Cow::Borrowed(value), Cow::Owned)
}

/// Sees to it that a name is shown as it is written: without control characters, and without such as turn the direction of
/// text or cannot be seen.
pub fn shown_as_written(name: &str, value: &Value) -> Result<(), HttpError> {
    match odd_character(value) {
        None => Ok(()),
        Some(odd) => Err(HttpError::bad_request(format!(
            "{name} must not have the character U+{:04X}: control characters, and those that turn text or cannot be seen, \
             are refused",
            u32::from(odd)
        ))),
    }
}

/// Of names that are no text, too: the database takes no key with a zero in it.
fn odd_character(value: &Value) -> Option<char> {
    let odd = |text: &String| text.chars().find(|c| odd::is_odd(*c));
    match value {
        Value::String(text) => odd(text),
        Value::Array(values) => values.iter().find_map(odd_character),
        Value::Object(object) => {
            object.iter().find_map(|(key, value)| odd(key).or_else(|| odd_character(value)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// How long to wait between attempts.
pub fn backoff(name: &str, value: &Value) -> Result<Document, HttpError> {
    Ok(request::backoff(name, &object(value))?)
}

/// When ended tasks go: an object of `archive_after` and `delete_after` in seconds, both optional.
pub fn retention(name: &str, value: &Value) -> Result<Document, HttpError> {
    let part = |key: &str, value: &Value| {
        let span = seconds(&format!("{name}.{key}"), value)?;
        Ok(bson::Bson::Double(span.as_secs_f64()))
    };
    Ok(request::parts(name, &object(value), field_names::<Retention>(), part)?)
}

/// Which attempts are recorded: an object of `share`, above 0 and up to 1, and `keep` in days.
pub fn record(name: &str, value: &Value) -> Result<Document, HttpError> {
    let most = |key: &str| if key == "share" { 1.0 } else { f64::from(LONGEST_KEPT) };
    let part = |key: &str, value: &Value| above_zero(&format!("{name}.{key}"), value, most(key));
    let record = request::parts(name, &object(value), field_names::<Record>(), part)?;
    if record.contains_key("share") { Ok(record) } else { Err(wrong(name, "an object with share")) }
}

fn above_zero(name: &str, value: &Value, most: f64) -> Result<Bson, Invalid> {
    let given = request::number(name, value, 0.0)?;
    let expected = || request::wrong(name, &format!("above 0 and at most {most}"));
    (given > 0.0 && given <= most).then(|| given.into()).ok_or_else(expected)
}

/// A version of a plugin. A number would lose zeros at its end.
pub fn version(name: &str, value: &Value) -> Result<Version, HttpError> {
    let Some(text) = value.as_str() else { return Err(wrong(name, "text, as \"1.2.0\"")) };
    text.trim().parse::<Version>().map_err(|error| HttpError::bad_request(format!("{name}: {error}")))
}

/// Which version is tried, and with which part of the tasks: an object of `version`, and `share` above 0 and up to 1. When it began is not
/// for clients to say.
pub fn canary(name: &str, value: &Value) -> Result<Document, HttpError> {
    let part = |key: &str, value: &Value| {
        let name = format!("{name}.{key}");
        if key == "share" {
            return above_zero(&name, value, 1.0);
        }
        let version = version(&name, value).map_err(|error| Invalid(error.to_string()))?;
        Ok(version.as_str().into())
    };
    let mut given = object(value).into_owned();
    if let Value::Object(given) = &mut given {
        given.remove(BEGAN);
    }
    let canary = request::parts(name, &given, field_names::<Canary>(), part)?;
    match (canary.get("version"), canary.get("share")) {
        (Some(version), Some(share)) => Ok(doc! { "version": version, "share": share }),
        _ => Err(wrong(name, "an object with version and share")),
    }
}

/// Which tasks run a second time: an object of `queue`, a name or an id, and `share`, above 0 and up to 1.
pub fn shadow(name: &str, value: &Value) -> Result<Document, HttpError> {
    let part = |key: &str, value: &Value| {
        let name = format!("{name}.{key}");
        if key == "share" { above_zero(&name, value, 1.0) } else { Ok(request::text(&name, value)?.into()) }
    };
    let shadow = request::parts(name, &object(value), field_names::<ShadowRule>(), part)?;
    if shadow.len() == 2 { Ok(shadow) } else { Err(wrong(name, "an object with queue and share")) }
}

/// How many tasks may start in what time: an object of `n`, `per` in seconds, and `burst`, which is optional.
pub fn rate(name: &str, value: &Value) -> Result<Document, HttpError> {
    let part = |key: &str, value: &Value| {
        let most = match key {
            "n" => limit::MOST,
            "per" => limit::LONGEST,
            _ => limit::LARGEST, // The burst.
        };
        let given = legacy::integer(value).filter(|n| !value.is_boolean() && (1..=most).contains(n));
        let expected = || request::wrong(&format!("{name}.{key}"), &format!("an integer from 1 to {most}"));
        Ok::<Bson, Invalid>(json::to_bson(&Value::from(given.ok_or_else(expected)?)))
    };
    let rate = request::parts(name, &object(value), field_names::<Rate>(), part)?;
    let is_whole = ["n", "per"].iter().all(|key| rate.contains_key(key));
    if is_whole { Ok(rate) } else { Err(wrong(name, "an object with n and per")) }
}

/// Which nodes may run the tasks of a queue: an object of `labels` and `names`. Null if it leaves none out.
pub fn nodes(name: &str, value: &Value) -> Result<Bson, HttpError> {
    let given = match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        other => other.clone(),
    };
    let Bson::Document(given) = json::to_bson(&given) else {
        return Err(wrong(name, "an object with labels and names"));
    };
    let selector = NodeSelector::read(&given)
        .map_err(|error| wrong(name, &format!("an object with labels and names: {error}")))?;
    Ok(if selector.is_empty() { Bson::Null } else { selector.document().into() })
}

/// `value` as it is stored: whole seconds as an integer.
pub fn stored(duration: Duration) -> bson::Bson {
    let seconds = duration.as_secs_f64();
    let whole = Value::from(duration.as_secs());
    if duration.subsec_nanos() == 0 { json::to_bson(&whole) } else { seconds.into() }
}

/// So many groups may have a weight.
const MOST_WEIGHTS: usize = 1_000;

/// How often each class of priorities is preferred: a list of numbers, or in a form these with commas between them.
pub fn scheme(name: &str, value: &Value) -> Result<Scheme, HttpError> {
    let numbers: Vec<Value> = match value {
        Value::Array(numbers) => numbers.clone(),
        Value::String(text) => {
            let text = text.trim().trim_start_matches('[').trim_end_matches(']');
            text.split(',').map(|number| Value::from(number.trim())).collect()
        }
        _ => Vec::new(), // Nothing else is several.
    };
    let number = |value: &Value| u32::try_from(legacy::integer(value).filter(|_| !value.is_boolean())?).ok();
    let numbers: Option<Vec<u32>> = numbers.iter().map(number).collect();
    let expected = || wrong(name, &format!("2 to {MOST_CLASSES} integers from 1 to 100"));
    numbers.and_then(Scheme::new).ok_or_else(expected)
}

/// How much more than others groups get: an object of their names, or its JSON as text.
pub fn weights(name: &str, value: &Value) -> Result<Document, HttpError> {
    let what =
        format!("an object of at most {MOST_WEIGHTS} groups, each with an integer from 1 to {MOST_WEIGHT}");
    let expected = || wrong(name, &what);
    let object: Map<String, Value> = match value {
        Value::Object(object) => object.clone(),
        Value::String(text) => crate::allowance::json(text).map_err(|_| expected())?,
        _ => return Err(expected()), // Nothing else has keys.
    };
    if !(1..=MOST_WEIGHTS).contains(&object.len()) {
        return Err(expected());
    }
    let weight = |(group, value): (&String, &Value)| {
        // The database takes a name that begins so for something to be done.
        if check_group(group).is_err() || group.starts_with('$') {
            let odd = Value::from(group.as_str());
            return Err(wrong(name, &format!("an object of groups, which {odd} is not")));
        }
        let fits = |n: &i64| !value.is_boolean() && (1..=i64::from(MOST_WEIGHT)).contains(n);
        let weight = legacy::integer(value).filter(fits);
        Ok((group.clone(), json::to_bson(&Value::from(weight.ok_or_else(expected)?))))
    };
    object.iter().map(weight).collect()
}

/// What filters have for them.
pub const TAG_NAMES: [&str; 2] = [TAGS, ANY_TAGS];

fn tags(name: &str, value: &Value) -> Result<Vec<String>, HttpError> {
    tags::checked(texts(name, value)?).map_err(|error| HttpError::bad_request(format!("{name}{error}")))
}

/// Tags that are looked for. A program that has none does not mean all tasks.
pub fn wanted_tags(name: &str, value: &Value) -> Result<Vec<String>, HttpError> {
    let tags = tags(name, value)?;
    let none =
        || HttpError::bad_request(format!("{name} is empty: leave it out if it is to restrict nothing"));
    if tags.is_empty() { Err(none()) } else { Ok(tags) }
}

/// What finds tasks with the tags that are asked for: all of the former, and one of the latter. `None`: none are.
pub fn tag_filter(all: Option<&Value>, any: Option<&Value>) -> Result<Option<Document>, HttpError> {
    let of = |name, given: Option<&Value>| {
        given.filter(|value| !is_unset(value)).map(|value| wanted_tags(name, value)).transpose()
    };
    Ok(tags::query(&of(TAGS, all)?.unwrap_or_default(), &of(ANY_TAGS, any)?.unwrap_or_default()))
}

/// The paths of the parameters that a queue takes as tags; null if there are none.
pub fn tag_index(name: &str, value: &Value) -> Result<Bson, HttpError> {
    let index = TagIndex::of(texts(name, value)?);
    let paths = index.map_err(|error| HttpError::bad_request(format!("{name}{error}")))?.paths();
    Ok(if paths.is_empty() { Bson::Null } else { paths.into() })
}

/// Texts as one text that is read again as these.
pub fn tag_line(texts: &[String]) -> String {
    let is_odd = |text: &String| text.contains(SEPARATORS) || text.starts_with('[') || text.trim() != text;
    if texts.iter().any(is_odd) { json::compact(&texts.into()) } else { texts.join(",") }
}

fn texts(name: &str, value: &Value) -> Result<Vec<String>, HttpError> {
    tag_list(value).ok_or_else(|| wrong(name, "an array of texts, or text with commas between them"))
}

/// The texts of an array, also of one in JSON as text, or of text with commas or line breaks between them.
pub fn tag_list(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(line) if line.starts_with('[') => tag_list(&crate::allowance::json(line).ok()?),
        value => request::list(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_have_no_odd_characters_wherever_they_are() {
        for odd in [json!("a\u{0}"), json!({ "nul\u{0}": null }), json!([{ "a": "\u{202e}" }])] {
            let error = shown_as_written("name", &odd).unwrap_err();
            assert!(error.status() == 400 && error.to_string().starts_with("name must not have"), "{error}");
        }
        for name in [json!("é"), json!(7), json!({ "a": ["b"] }), json!(null)] {
            assert!(shown_as_written("name", &name).is_ok(), "{name}");
        }
    }

    #[test]
    fn objects_have_known_keys() {
        assert_eq!(
            backoff("b", &json!({"base": 2, "jitter": 0})).unwrap(),
            doc! { "base": 2.0, "jitter": 0.0 }
        );
        assert_eq!(retention("r", &json!("{\"delete_after\":60}")).unwrap(), doc! { "delete_after": 60.0 });
        assert_eq!(
            rate("r", &json!({"n": "10", "per": 60, "burst": null})).unwrap(),
            doc! { "n": 10, "per": 60 }
        );
        let wrong = |value: Value| rate("r", &value).unwrap_err().to_string();
        assert_eq!(wrong(json!({"n": 5, "burst": 2})), "r must be an object with n and per");
        assert_eq!(wrong(json!({"n": 0, "per": 1})), "r.n must be an integer from 1 to 100000");
        assert_eq!(wrong(json!({"n": 1, "per": 0.5})), "r.per must be an integer from 1 to 604800");
        assert_eq!(
            wrong(json!({"n": 1, "per": 1, "burst": true})),
            "r.burst must be an integer from 1 to 10000"
        );
        let message = |value: Value| backoff("b", &value).unwrap_err().to_string();
        for no in [json!({}), json!({"bases": 1}), json!(1), json!("x")] {
            assert_eq!(message(no), "b must be an object with any of base, factor, max, jitter");
        }
        assert_eq!(message(json!({"jitter": 2})), "b.jitter must be a number from 0 to 1");
        assert!(message(json!({"base": -1})).starts_with("b.base must be a number from 0"));
    }

    #[test]
    fn what_makes_a_queue_fair_is_checked() {
        assert_eq!(scheme("s", &json!([2, 1])).unwrap().times(), [2, 1]);
        assert_eq!(scheme("s", &json!(" [4, 2,1]")).unwrap().times(), [4, 2, 1]);
        for no in [json!([1]), json!([0, 1]), json!("2;1"), json!(3), json!([2, true]), json!([1, 101])] {
            let error = scheme("s", &no).unwrap_err();
            assert_eq!(error.to_string(), "s must be 2 to 10 integers from 1 to 100", "{no}");
        }
        assert_eq!(weights("w", &json!({"a": "5", "a/b.c": 2})).unwrap(), doc! { "a": 5, "a/b.c": 2 });
        assert_eq!(weights("w", &json!("{\"a\": 5}")).unwrap(), doc! { "a": 5 });
        for no in [json!({}), json!({"a": 0}), json!({"a": 101}), json!({"a": true}), json!("x"), json!([1])]
        {
            let error = weights("w", &no).unwrap_err().to_string();
            assert!(error.starts_with("w must be an object of at most 1000 groups"), "{no}: {error}");
        }
        for no in [json!({"a/": 1}), json!({"": 1}), json!({"$a": 1})] {
            assert!(
                weights("w", &no)
                    .unwrap_err()
                    .to_string()
                    .starts_with("w must be an object of groups, which ")
            );
        }
    }

    #[test]
    fn tags_are_a_list_or_its_text() {
        for same in [
            json!(["a=1", "b c", 7]),
            json!("a=1, b c,7,"),
            json!("a=1\r\nb c\n7"),
            json!("[\"a=1\",\"b c\",7]"),
        ] {
            assert_eq!(tags("t", &same).unwrap(), ["a=1", "b c", "7"], "{same}");
        }
        for texts in [json!(["a", "b c"]), json!(["Smith, Ann"]), json!(["[a", " b"]), json!([])] {
            let texts = tag_list(&texts).unwrap();
            assert_eq!(tag_list(&tag_line(&texts).into()), Some(texts));
        }
        for (odd, expected) in [
            (json!({}), "t must be an array of texts, or text with commas between them"),
            (json!([true]), "t must be an array of texts, or text with commas between them"),
            (json!("[1"), "t must be an array of texts, or text with commas between them"),
            (json!(["a", ""]), "t[1] must be text of 1 to 128 characters, without control characters"),
            (json!(vec!["x"; 0]), ""),
        ] {
            let error = tags("t", &odd).map_or_else(|error| error.to_string(), |_| String::new());
            assert_eq!(error, expected, "{odd}");
        }
    }

    #[test]
    fn a_filter_is_for_all_or_any() {
        let of = |given: Value| {
            tag_filter(given.get("tags"), given.get("any_tags")).map_err(|error| error.to_string())
        };
        assert!(of(json!({ "tags": [] })).unwrap_err().starts_with("tags is empty: leave it out"));
        assert_eq!(of(json!({ "tags": "", "any_tags": null, "status": 1 })), Ok(None));
        let expected = doc! { "tags": { "$all": ["a", "b"], "$in": ["c"] } };
        assert_eq!(of(json!({ "tags": ["a", "b"], "any_tags": "c" })), Ok(Some(expected)));
        assert!(
            of(json!({ "any_tags": { "$gt": "" } })).unwrap_err().starts_with("any_tags must be an array")
        );
    }

    #[test]
    fn an_index_is_a_list_of_paths() {
        let paths = Bson::from(vec!["params.a".to_owned(), "params.b.c".to_owned()]);
        assert_eq!(tag_index("index", &json!("params.a, params.b.c")).unwrap(), paths);
        assert_eq!(tag_index("index", &json!([])).unwrap(), Bson::Null);
        let error = tag_index("index", &json!(["customer"])).unwrap_err().to_string();
        assert!(error.starts_with("index[0] must be the path of a parameter"), "{error}");
    }
}
