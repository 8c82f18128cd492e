//! The names of a type's fields, from its own declaration.

use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// What the fields of `T`, a struct, are called on the wire, in their order. Those of flattened structs are not known.
pub fn of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
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
    use super::*;

    #[test]
    fn fields_have_the_names_of_the_wire() {
        #[derive(serde::Deserialize)]
        struct Example {
            #[serde(rename = ".limit")]
            _limit: Option<u32>,
            #[serde(default)]
            _names: Vec<String>,
        }
        assert_eq!(of::<Example>(), [".limit", "_names"]);
        assert!(of::<String>().is_empty());
    }
}
