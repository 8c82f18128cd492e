//! Asks `Deserialize` of [`Config`] what it wants at a place: it is led there, and what it asks for is noted.

use std::cell::Cell;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::super::Config;

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An object with these keys.
    Fields(&'static [&'static str]),
    /// An object with any keys, whose values are alike.
    Map,
    /// Anything else, or an object that the code looks through by itself.
    Value,
}

pub fn shape(path: &[String]) -> Shape {
    let found = Cell::new(Shape::Value);
    // It ends with an error there, and has said by then what it wants.
    let ended = Config::deserialize(Guide { path, found: &found });
    assert!(ended.is_err(), "{path:?} was not reached");
    found.get()
}

/// Leads to `path` and notes what is asked for there.
struct Guide<'a> {
    path: &'a [String],
    found: &'a Cell<Shape>,
}

impl Guide<'_> {
    fn arrived<T>(&self, shape: Shape) -> Result<T, Error> {
        self.found.set(shape);
        Err(Error::custom("arrived"))
    }
}

impl<'de> Deserializer<'de> for Guide<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.arrived(Shape::Value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.path {
            [] => self.arrived(Shape::Fields(fields)),
            [next, rest @ ..] => visitor.visit_map(Way { next: Some(next), rest, found: self.found }),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.path {
            [] => self.arrived(Shape::Map),
            [next, rest @ ..] => visitor.visit_map(Way { next: Some(next), rest, found: self.found }),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct enum identifier ignored_any
    }
}

/// An object with one key.
struct Way<'a> {
    next: Option<&'a str>,
    rest: &'a [String],
    found: &'a Cell<Shape>,
}

impl<'de> MapAccess<'de> for Way<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let key = self.next.take().map(|key| -> StrDeserializer<'_, Error> { key.into_deserializer() });
        key.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Guide { path: self.rest, found: self.found })
    }
}
