//! Values as clients send them: numbers as text, as forms and Perl's clients do, and nothing as null or as an empty field.

use std::convert::Infallible;
use std::str::FromStr;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::seconds;

/// A higher limit is a mistake.
const MOST: i64 = 1_000_000_000;

/// Names, keys and reasons have so many characters at most.
const LONGEST_TEXT: usize = 200;

/// The integer that `value` is or says, as Perl's driver would take it.
pub fn integer(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "checked: no fraction, within 2^53")]
    let whole = |n: f64| (n.fract() == 0.0 && n.abs() < 9_007_199_254_740_992.0).then_some(n as i64);
    match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().parse().ok().or_else(|| text.trim().parse().ok().and_then(whole)),
        Value::Bool(flag) => Some(i64::from(*flag)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether `value` says nothing: null, or a field that a form left empty.
pub fn is_unset(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

/// Whether Perl takes `value` for true: everything but null, false, 0, "0" and "".
pub fn is_true(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty() && text != "0",
        Some(Value::Array(_) | Value::Object(_)) => true,
    }
}

/// Reads a field that was given, whatever it says. With `default`, one that was not is `None`.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// The values of an array of texts, or of text with commas or line breaks between them.
pub fn list(value: &Value) -> Vec<String> {
    let texts = match value {
        Value::Array(values) => return values.iter().flat_map(list).collect(),
        Value::String(text) => text.split([',', '\n', '\r']).map(|text| text.trim().to_owned()).collect(),
        Value::Null => Vec::new(),
        other => vec![other.to_string()],
    };
    texts.into_iter().filter(|text: &String| !text.is_empty()).collect()
}

/// Text that is neither empty nor long, or a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let given = match Value::deserialize(value)? {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            _ => String::new(), // Nothing else is text.
        };
        let fits = (1..=LONGEST_TEXT).contains(&given.chars().count()) && !given.contains('\0');
        let wrong = || D::Error::custom(format!("must be text of 1 to {LONGEST_TEXT} characters"));
        fits.then_some(Self(given)).ok_or_else(wrong)
    }
}

/// On a command line, any text: the server knows what it is to be.
impl FromStr for Text {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

/// True or false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        match Value::deserialize(value)? {
            Value::Bool(flag) => Ok(Self(flag)),
            Value::Number(number) if number.as_i64() == Some(0) => Ok(Self(false)),
            Value::Number(number) if number.as_i64() == Some(1) => Ok(Self(true)),
            Value::String(text) if text == "true" || text == "1" => Ok(Self(true)),
            Value::String(text) if text == "false" || text == "0" => Ok(Self(false)),
            _ => Err(D::Error::custom("must be true or false")),
        }
    }
}

impl FromStr for Flag {
    type Err = std::str::ParseBoolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct Whole<const LEAST: i64, const MOST: i64>(pub i64);

impl<const LEAST: i64, const MOST: i64> TryFrom<Value> for Whole<LEAST, MOST> {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let number = integer(&value).filter(|number| !value.is_boolean() && (LEAST..=MOST).contains(number));
        number.map(Self).ok_or_else(|| format!("must be from {LEAST} to {MOST}"))
    }
}

impl<const LEAST: i64, const MOST: i64> FromStr for Whole<LEAST, MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Value::from(text).try_into()
    }
}

/// A length of time in whole seconds. What is none stays as it is, for the server to say so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value")]
pub struct Seconds(pub Value);

impl From<Value> for Seconds {
    fn from(value: Value) -> Self {
        let number = integer(&value).filter(|_| !value.is_boolean());
        Self(number.map_or(value, Value::from))
    }
}

/// On a command line, with a unit.
impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        seconds::parse(text).map(|time| Self(seconds::value(time)))
    }
}

/// A point in time, for the server to read: seconds since 1970 as a number, or ISO 8601.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct When(pub Value);

impl FromStr for When {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.parse::<u64>().map_or_else(|_| text.into(), Value::from)))
    }
}

/// What a field is set to. `None`: back to its default, which null and an empty field of a form mean, and a field that is not given if
/// nothing else tells of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Set<T>(pub Option<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Set<T> {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        // What is not given is read as an option alone.
        let value = Option::<Value>::deserialize(value)?.filter(|value| !is_unset(value));
        value.map(serde_json::from_value).transpose().map(Self).map_err(D::Error::custom)
    }
}

impl Set<Text> {
    pub fn text(self) -> Option<String> {
        self.0.map(|Text(text)| text)
    }
}

impl<T: FromStr> FromStr for Set<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.parse().map(|value| Self(Some(value)))
    }
}

/// How much there may be at most. `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Limit(pub Option<u32>);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(value)?;
        if is_unset(&value) {
            return Ok(Self(None));
        }
        let most = integer(&value).filter(|most| !value.is_boolean() && (0..=MOST).contains(most));
        match most.and_then(|most| u32::try_from(most).ok()) {
            Some(most) => Ok(Self(Some(most))),
            None => Err(D::Error::custom(format!("must be an integer from 0 to {MOST}, or null"))),
        }
    }
}

/// On a command line, `none` is no limit.
impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|most| Self(Some(most))).map_err(|_| "expected a number or none".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_may_be_text() {
        for (value, number) in [
            (json!("-2"), Some(-2)),
            (json!("-2.0"), Some(-2)),
            (json!(3.0), Some(3)),
            (json!(true), Some(1)),
            (json!("abc"), None),
            (json!("1.5"), None),
            (json!(null), None),
            (json!([1]), None),
        ] {
            assert_eq!(integer(&value), number, "{value}");
        }
    }

    #[test]
    fn what_is_set_may_be_the_default() {
        let read = |value: Value| Set::<Seconds>::deserialize(value).unwrap().0.map(|Seconds(time)| time);
        assert_eq!([json!(null), json!("")].map(read), [None, None]);
        assert_eq!([json!("30"), json!(1.0)].map(read), [Some(json!(30)), Some(json!(1))]);
        assert_eq!([json!("soon"), json!(true)].map(read), [Some(json!("soon")), Some(json!(true))]);
        assert_eq!("5m".parse(), Ok(Set(Some(Seconds(json!(300))))));
        assert_eq!(["7", "2026-11-20"].map(str::parse), [Ok(When(json!(7))), Ok(When(json!("2026-11-20")))]);
        assert_eq!("true".parse(), Ok(Set(Some(Flag(true)))));
        assert_eq!(Flag::deserialize(json!("yes")).unwrap_err().to_string(), "must be true or false");
    }

    #[test]
    fn what_is_not_given_is_not_set() {
        #[derive(Debug, Deserialize)]
        struct Example {
            text: Set<Text>,
            any: Set<Value>,
        }
        let read = |value: Value| Example::deserialize(value).map_err(|error| error.to_string());
        for nothing in [json!({}), json!({ "text": null, "any": null }), json!({ "text": "", "any": "" })] {
            let read = read(nothing).unwrap();
            assert_eq!((read.text.text(), read.any), (None, Set(None)));
        }
        let given = read(json!({ "text": 7, "any": [] })).unwrap();
        assert_eq!((given.text.text().as_deref(), given.any), (Some("7"), Set(Some(json!([])))));
        let error = read(json!({ "text": [] })).unwrap_err();
        assert_eq!(error, "must be text of 1 to 200 characters");
    }

    #[test]
    fn lists_may_be_lines() {
        assert_eq!(list(&json!(["a, b", "", "c\nd"])), ["a", "b", "c", "d"]);
        assert_eq!(list(&json!("a\r\nb\r\n")), ["a", "b"]);
        assert!(list(&json!("")).is_empty() && list(&json!(null)).is_empty());
    }

    #[test]
    fn limits_are_whole_numbers_or_none() {
        let read = |value: Value| Limit::deserialize(value).map_err(|error| error.to_string());
        for (value, limit) in [
            (json!(5), Some(5)),
            (json!("100"), Some(100)),
            (json!(0), Some(0)),
            (json!(null), None),
            (json!(""), None),
        ] {
            assert_eq!(read(value), Ok(Limit(limit)));
        }
        for wrong in [json!(-1), json!(1.5), json!("many"), json!(true), json!(1_000_000_001), json!([])] {
            assert_eq!(read(wrong).unwrap_err(), "must be an integer from 0 to 1000000000, or null");
        }
        assert_eq!(("5".parse(), "none".parse()), (Ok(Limit(Some(5))), Ok(Limit(None))));
        assert!("-1".parse::<Limit>().is_err() && "".parse::<Limit>().is_err());
    }
}
