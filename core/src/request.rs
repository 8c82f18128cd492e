//! What clients ask for, as JSON, and what it must be: single values here, the options of tasks in [`options`]. What is wrong is said with
//! the name of the option or parameter.

mod options;

use std::ops::RangeInclusive;
use std::time::Duration;

use bson::{Bson, DateTime, Document};
use disbatch_wire::liberal::{Flag, Text, integer};
use serde::Deserialize;
use serde_json::{Map, Value};

pub use options::{files, names, options};

use crate::fair::check_group;
use crate::tags;

/// Longer times (ten years) are mistakes.
const LONGEST_SECONDS: f64 = 315_360_000.0;

/// The last second of the year 9999. What is beyond is no time in seconds.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// What tasks may have.
const PRIORITIES: RangeInclusive<i64> = -1_000..=1_000;

/// Something that cannot be taken as it was given. Begins with its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// It must be something else.
pub fn wrong(name: &str, expected: &str) -> Invalid {
    Invalid(format!("{name} must be {expected}"))
}

pub fn flag(name: &str, value: &Value) -> Result<bool, Invalid> {
    let read = Flag::deserialize(value).map(|Flag(flag)| flag);
    read.map_err(|error| Invalid(format!("{name} {error}")))
}

/// Text that is neither empty nor long.
pub fn text(name: &str, value: &Value) -> Result<String, Invalid> {
    let read = Text::deserialize(value).map(|Text(text)| text);
    read.map_err(|error| Invalid(format!("{name} {error}")))
}

/// A number from `least` on.
pub fn number(name: &str, value: &Value, least: f64) -> Result<f64, Invalid> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None, // Nothing else is a number.
    };
    let fits = |number: &f64| number.is_finite() && (least..=LONGEST_SECONDS).contains(number);
    number.filter(fits).ok_or_else(|| wrong(name, &format!("a number from {least} to {LONGEST_SECONDS}")))
}

/// A time span in seconds.
pub fn seconds(name: &str, value: &Value) -> Result<Duration, Invalid> {
    let wrong = || wrong(name, &format!("seconds from 0 to {LONGEST_SECONDS}"));
    let seconds = number(name, value, 0.0).map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// A time span in seconds that is not 0.
pub fn some_seconds(name: &str, value: &Value) -> Result<Duration, Invalid> {
    let given = seconds(name, value)?;
    if given.is_zero() { Err(wrong(name, "more than 0 seconds")) } else { Ok(given) }
}

/// An integer from 1 on.
pub fn positive(name: &str, value: &Value) -> Result<i64, Invalid> {
    let given = integer(value).filter(|n| !value.is_boolean() && (1..=1_000_000).contains(n));
    given.ok_or_else(|| wrong(name, "an integer from 1 to 1000000"))
}

/// A point in time: ISO 8601, UTC unless it has a zone, or seconds since 1970.
pub fn time(name: &str, value: &Value) -> Result<DateTime, Invalid> {
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
    // Fields of forms leave out the zone, and seconds that are 0.
    ["", "Z", ":00Z"].iter().find_map(|rest| DateTime::parse_rfc3339_str(format!("{text}{rest}")).ok())
}

/// One of `words`.
pub fn word<'a>(name: &str, value: &Value, words: &[&'a str]) -> Result<&'a str, Invalid> {
    let found = value.as_str().and_then(|text| words.iter().find(|word| **word == text));
    found.copied().ok_or_else(|| {
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        wrong(name, &quoted.join(" or "))
    })
}

/// What texts are separated by, where they are one text.
pub const SEPARATORS: [char; 3] = [',', '\n', '\r'];

/// The texts of an array, or of text with commas or line breaks between them.
pub fn list(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None, // Nothing else is text.
    };
    if let Value::Array(texts) = value {
        return texts.iter().map(text).collect();
    }
    let text = text(value)?;
    let texts = text.split(SEPARATORS).map(str::trim).filter(|text| !text.is_empty());
    Some(texts.map(str::to_owned).collect())
}

pub fn tags(name: &str, value: &Value) -> Result<Vec<String>, Invalid> {
    let texts = list(value).ok_or_else(|| wrong(name, "an array of texts, or text with commas between them"));
    tags::checked(texts?).map_err(|error| Invalid(format!("{name}{error}")))
}

pub fn group(name: &str, value: &Value) -> Result<String, Invalid> {
    let given = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(), // Nothing else is text.
    };
    check_group(&given).map_err(|error| wrong(name, &error.to_string()))?;
    Ok(given)
}

pub fn priority(name: &str, value: &Value) -> Result<i64, Invalid> {
    let given = integer(value).filter(|n| !value.is_boolean() && PRIORITIES.contains(n));
    let expected = || format!("an integer from {} to {}", PRIORITIES.start(), PRIORITIES.end());
    given.ok_or_else(|| wrong(name, &expected()))
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

/// An object of known keys.
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

/// Sees to it that the keys of all objects in a value can be stored.
pub fn check_value(value: &Value) -> Result<(), Invalid> {
    match value {
        Value::Object(object) => check_keys(object),
        Value::Array(items) => items.iter().try_for_each(check_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
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
}
