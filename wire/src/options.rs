//! Options of requests: how they are read, as numbers are text where they come in an address, and what is said of one that is
//! wrong. And what the fields of a type are called, from its own declaration.

use serde::de::value::Error;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_json::Value;

use crate::liberal::{self, Text, is_true, is_unset};

/// What is said of an option begins so if its name, which goes between, is in quotes.
pub const QUOTES: &str = "''";

/// What is shown beyond what Disbatch has.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct Details {
    /// With all fields. On unless empty or 0.
    #[serde(rename = ".details", default, deserialize_with = "switch")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub details: bool,
}

/// Something that is on or off.
pub fn switch<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    Value::deserialize(value).map(|value| is_true(Some(&value)))
}

/// Text that is neither empty nor long.
pub fn text<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Text::deserialize(value).map(|Text(text)| Some(text))
}

/// An integer, whatever it may be.
pub fn integer<'de, D: Deserializer<'de>>(value: D) -> Result<Option<i64>, D::Error> {
    let value = Value::deserialize(value)?;
    let number = liberal::integer(&value);
    let is_right = number.is_some() || is_unset(&value);
    is_right.then_some(number).ok_or_else(|| D::Error::custom(format!("{QUOTES} must be an integer")))
}

/// An integer from 1 to `MOST`.
pub fn up_to<'de, D: Deserializer<'de>, T: TryFrom<i64>, const MOST: i64>(
    value: D,
) -> Result<Option<T>, D::Error> {
    within(value, MOST, "from")
}

/// The same, of which it is said that it is one.
pub fn integer_up_to<'de, D: Deserializer<'de>, T: TryFrom<i64>, const MOST: i64>(
    value: D,
) -> Result<Option<T>, D::Error> {
    within(value, MOST, "an integer from")
}

fn within<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    value: D,
    most: i64,
    expected: &str,
) -> Result<Option<T>, D::Error> {
    let fits = |number: i64| T::try_from(number).ok().filter(|_| (1..=most).contains(&number));
    let wrong = || D::Error::custom(format!("{QUOTES} must be {expected} 1 to {most}"));
    integer(value)?.map(|number| fits(number).ok_or_else(wrong)).transpose()
}

/// What the fields of `T`, a struct, are called on the wire, in their order. Those of flattened structs are not known.
pub fn field_names<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &[&str] = &[];
    let _stopped = T::deserialize(Names(&mut names));
    names
}

/// Hears what is asked for, and has nothing.
struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_told_from_what_is_none_and_from_what_is_beyond() {
        let read = |value: Value| up_to::<_, usize, 20>(value).map_err(|error| error.to_string());
        for (value, number) in [
            (json!(5), Some(5)),
            (json!("20"), Some(20)),
            (json!(true), Some(1)),
            (json!(null), None),
            (json!(""), None),
        ] {
            assert_eq!(read(value.clone()), Ok(number), "{value}");
        }
        for wrong in [json!("x"), json!(1.5), json!([1]), json!({})] {
            assert_eq!(read(wrong).unwrap_err(), "'' must be an integer");
        }
        for wrong in [json!(0), json!("21"), json!(-1)] {
            assert_eq!(read(wrong.clone()).unwrap_err(), "'' must be from 1 to 20");
            let error = integer_up_to::<_, i64, 20>(wrong).unwrap_err().to_string();
            assert_eq!(error, "'' must be an integer from 1 to 20");
        }
        assert_eq!(up_to::<_, i8, 1000>(json!(200)).ok(), None, "it has to fit");
    }

    #[test]
    fn switches_are_on_unless_they_say_nothing_or_0() {
        let all = [json!(1), json!("a"), json!([]), json!(null), json!(""), json!("0"), json!(false)];
        let read = all.map(|value| switch(value).unwrap());
        assert_eq!(read, [true, true, true, false, false, false, false]);
    }

    #[test]
    fn fields_have_the_names_of_the_wire() {
        #[derive(serde::Deserialize)]
        struct Example {
            #[serde(rename = ".limit")]
            _limit: Option<u32>,
            #[serde(default)]
            _names: Vec<String>,
        }
        assert_eq!(field_names::<Example>(), [".limit", "_names"]);
        assert!(field_names::<String>().is_empty());
    }
}
