//! Values that a client gives as JSON or as text of a form, and what they must be. What is wrong is said with the
//! name of the parameter.

mod fair;
pub mod tags;

use std::time::Duration;

use bson::{Bson, DateTime, Document};
use disbatch_core::model::NodeSelector;
use disbatch_core::rate::limit;
use disbatch_core::text as odd;
use disbatch_wire::liberal::{Flag, Text};
use serde::Deserialize;
use serde_json::{Map, Value};

pub use disbatch_wire::liberal::is_unset;
pub use fair::{group, priority, scheme, weights};

use crate::error::HttpError;
use crate::json;
use crate::legacy;

/// Longer times (ten years) are mistakes.
const LONGEST_SECONDS: f64 = 315_360_000.0;

/// The last second of the year 9999. What is beyond is no time in seconds.
const LAST_SECOND: f64 = 253_402_300_799.0;

fn wrong(name: &str, expected: &str) -> HttpError {
    HttpError::bad_request(format!("{name} must be {expected}"))
}

/// True or false.
pub fn flag(name: &str, value: &Value) -> Result<bool, HttpError> {
    let read = Flag::deserialize(value).map(|Flag(flag)| flag);
    read.map_err(|error| HttpError::bad_request(format!("{name} {error}")))
}

/// Text that is neither empty nor long.
pub fn text(name: &str, value: &Value) -> Result<String, HttpError> {
    let read = Text::deserialize(value).map(|Text(text)| text);
    read.map_err(|error| HttpError::bad_request(format!("{name} {error}")))
}

/// Sees to it that a name is shown as it is written: without control characters, and without such as turn the direction of
/// text or cannot be seen.
pub fn shown_as_written(name: &str, value: &Value) -> Result<(), HttpError> {
    let odd = value.as_str().and_then(|text| text.chars().find(|c| odd::is_odd(*c)));
    match odd {
        None => Ok(()),
        Some(odd) => Err(HttpError::bad_request(format!(
            "{name} must not have the character U+{:04X}: control characters, and those that turn text or cannot be seen, \
             are refused",
            u32::from(odd)
        ))),
    }
}

/// A number from `least` on.
pub fn number(name: &str, value: &Value, least: f64) -> Result<f64, HttpError> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None, // Nothing else is a number.
    };
    let fits = |number: &f64| number.is_finite() && (least..=LONGEST_SECONDS).contains(number);
    number.filter(fits).ok_or_else(|| wrong(name, &format!("a number from {least} to {LONGEST_SECONDS}")))
}

/// A time span in seconds.
pub fn seconds(name: &str, value: &Value) -> Result<Duration, HttpError> {
    let wrong = || wrong(name, &format!("seconds from 0 to {LONGEST_SECONDS}"));
    let seconds = number(name, value, 0.0).map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// A time span in seconds that is not 0.
pub fn some_seconds(name: &str, value: &Value) -> Result<Duration, HttpError> {
    let given = seconds(name, value)?;
    if given.is_zero() { Err(wrong(name, "more than 0 seconds")) } else { Ok(given) }
}

/// An integer from 1 on.
pub fn positive(name: &str, value: &Value) -> Result<i64, HttpError> {
    let given = legacy::integer(value).filter(|n| !value.is_boolean() && (1..=1_000_000).contains(n));
    given.ok_or_else(|| wrong(name, "an integer from 1 to 1000000"))
}

/// A point in time: ISO 8601, UTC unless it has a zone, or seconds since 1970.
pub fn time(name: &str, value: &Value) -> Result<DateTime, HttpError> {
    let expected = "a time as 2026-11-20T08:24:27Z, or in seconds since 1970";
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.trim().parse::<f64>() {
            Ok(seconds) => Some(seconds),
            Err(_) => return iso_time(text.trim()).ok_or_else(|| wrong(name, expected)),
        },
        _ => None, // Nothing else is a time.
    };
    let seconds = number.filter(|seconds| (0.0..=LAST_SECOND).contains(seconds));
    #[expect(clippy::cast_possible_truncation, reason = "checked: at most the year 9999")]
    let at = seconds.map(|seconds| DateTime::from_millis((seconds * 1000.0) as i64));
    at.ok_or_else(|| wrong(name, expected))
}

fn iso_time(text: &str) -> Option<DateTime> {
    let text = text.replacen(' ', "T", 1);
    DateTime::parse_rfc3339_str(&text).or_else(|_| DateTime::parse_rfc3339_str(format!("{text}Z"))).ok()
}

/// One of `words`.
pub fn word<'a>(name: &str, value: &Value, words: &[&'a str]) -> Result<&'a str, HttpError> {
    let found = value.as_str().and_then(|text| words.iter().find(|word| **word == text));
    found.copied().ok_or_else(|| {
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        wrong(name, &quoted.join(" or "))
    })
}

/// How long to wait between attempts: an object of `base`, `factor`, `max` and `jitter`, all optional.
pub fn backoff(name: &str, value: &Value) -> Result<Document, HttpError> {
    let part = |key: &str, value: &Value| {
        let number = number(&format!("{name}.{key}"), value, 0.0)?;
        if key == "jitter" && number > 1.0 {
            return Err(wrong(&format!("{name}.{key}"), "a number from 0 to 1"));
        }
        Ok(bson::Bson::Double(number))
    };
    parts(name, value, &["base", "factor", "max", "jitter"], part)
}

/// When ended tasks go: an object of `archive_after` and `delete_after` in seconds, both optional.
pub fn retention(name: &str, value: &Value) -> Result<Document, HttpError> {
    let part = |key: &str, value: &Value| {
        let span = seconds(&format!("{name}.{key}"), value)?;
        Ok(bson::Bson::Double(span.as_secs_f64()))
    };
    parts(name, value, &["archive_after", "delete_after"], part)
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
        let expected = || wrong(&format!("{name}.{key}"), &format!("an integer from 1 to {most}"));
        Ok(json::to_bson(&Value::from(given.ok_or_else(expected)?)))
    };
    let rate = parts(name, value, &["n", "per", "burst"], part)?;
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

/// An object of known keys, or its JSON as text.
fn parts(
    name: &str,
    value: &Value,
    known: &[&str],
    part: impl Fn(&str, &Value) -> Result<bson::Bson, HttpError>,
) -> Result<Document, HttpError> {
    let expected = || wrong(name, &format!("an object with any of {}", known.join(", ")));
    let object: Map<String, Value> = match value {
        Value::Object(object) => object.clone(),
        Value::String(text) => crate::allowance::json(text).map_err(|_| expected())?,
        _ => return Err(expected()), // Nothing else has keys.
    };
    if object.is_empty() || object.keys().any(|key| !known.contains(&key.as_str())) {
        return Err(expected());
    }
    object
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| Ok((key.clone(), part(key, value)?)))
        .collect()
}

/// `value` as it is stored: whole seconds as an integer.
pub fn stored(duration: Duration) -> bson::Bson {
    let seconds = duration.as_secs_f64();
    let whole = Value::from(duration.as_secs());
    if duration.subsec_nanos() == 0 { json::to_bson(&whole) } else { seconds.into() }
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
    fn words_and_text_are_checked() {
        assert_eq!(word("sort", &json!("fifo"), &["fifo", "lifo"]).unwrap(), "fifo");
        let error = word("sort", &json!("up"), &["fifo", "lifo"]).unwrap_err();
        assert_eq!(error.to_string(), "sort must be \"fifo\" or \"lifo\"");
        assert_eq!(text("k", &json!(7)).unwrap(), "7");
        for no in [json!(""), json!("x".repeat(201)), json!({}), json!("a\0")] {
            assert_eq!(text("k", &no).unwrap_err().to_string(), "k must be text of 1 to 200 characters");
        }
    }
}
