//! `config.schema.json`, for editors. It is made of what the code reads: which keys there are is asked of the types' `Deserialize`,
//! what a key may be is tried out with [`Config::parse`], and what it means stands in the table of `docs/operators.md`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use disbatch_values::json::to_strict;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value, json};

use crate::config::{Config, ConfigError};
use crate::schema::Schema;

/// Stands for all keys of a map in a path.
const ANY: &str = "*";

const MUST_BE_THERE: [&str; 2] = ["mongohost", "database"];

/// One value at least that each key takes which takes values of that type.
fn samples() -> [(&'static str, Vec<Value>); 7] {
    let texts = [
        "64",
        "word",
        "auto",
        "exact",
        "64M",
        "/absolute",
        "10.0.0.1",
        "10.0.0.1:9464",
        "https://host/{trace_id}",
        "6b0003bb686c8275d70dc2f1",
        "INFO",
    ];
    let lists = [json!([]), json!(["word"]), json!(["10.0.0.1"]), json!(["6b0003bb686c8275d70dc2f1"])];
    [
        ("null", vec![Value::Null]),
        ("boolean", vec![json!(true)]),
        ("number", vec![json!(1.5)]),
        ("integer", [0, 1, 8, 1 << 21].map(Value::from).to_vec()),
        ("string", texts.map(Value::from).to_vec()),
        ("array", lists.to_vec()),
        ("object", vec![json!({}), json!({"user": "word"}), json!({"variable": "word", "plugins": []})]),
    ]
}

/// The configuration in which only `value` is at `path`, besides what must be there.
fn configuration(path: &[String], value: &Value) -> Value {
    let inner = path.iter().rev().fold(value.clone(), |value, name| json!({ name.as_str(): value }));
    let mut whole = json!({ "mongohost": "h", "database": "d" });
    if let (Value::Object(whole), Value::Object(inner)) = (&mut whole, inner) {
        whole.extend(inner);
    }
    whole
}

/// Whether `value` may be at `path`, whatever else would have to be there then.
fn takes(path: &[String], value: &Value) -> bool {
    let path: Vec<String> = path.iter().map(|name| name.replace(ANY, "word")).collect();
    let text = configuration(&path, value).to_string();
    match Config::parse(&text, Path::new("/etc/disbatch/config.json")) {
        Ok(_) => true,
        Err(ConfigError::Invalid { key, message, .. }) => {
            let at = path.join(".");
            message.starts_with("missing field")
                || (key != at && !key.starts_with(&format!("{at}[")) && !at.starts_with(&key))
        }
        Err(ConfigError::Read { .. } | ConfigError::Parse { .. } | ConfigError::Unknown { .. }) => false,
    }
}

fn types(path: &[String], wrap: impl Fn(&Value) -> Value) -> Vec<&'static str> {
    let taken = |values: &Vec<Value>| values.iter().any(|value| takes(path, &wrap(value)));
    let mut types: Vec<_> =
        samples().iter().filter(|(_, values)| taken(values)).map(|(name, _)| *name).collect();
    if types.contains(&"number") {
        types.retain(|name| *name != "integer");
    }
    types
}

/// The rows of the table in `docs/operators.md` by their keys: what the value is, and the default.
fn documented() -> BTreeMap<String, String> {
    let page = include_str!("../../../../../docs/operators.md");
    let (_, section) = page.split_once("\n## Configuration\n").unwrap();
    let (table, _) = section.split_once("\n## ").unwrap();
    let link = regex::Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let mut rows = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [keys, value, default, ..] = cells[..] else { panic!("{row}") };
        let keys: Vec<&str> = keys.split('`').skip(1).step_by(2).collect();
        let prefix = keys[0].rsplit_once('.').map_or("", |(prefix, _)| prefix);
        let text = link.replace_all(value, "$1").replace(", see below", "").replace('`', "");
        let text = format!("{text}. Default: {}", link.replace_all(default, "$1").replace('`', ""));
        for key in keys {
            let key = if key.starts_with('.') { format!("{prefix}{key}") } else { key.to_owned() };
            rows.insert(key, text.clone());
        }
    }
    rows
}

fn schema_at(path: &mut Vec<String>, rows: &mut BTreeMap<String, String>) -> Value {
    let mut schema = Map::new();
    if let Some(text) = rows.remove(&path.join(".")) {
        schema.insert("description".to_owned(), text.into());
    }
    let mut types = types(path, Value::clone);
    match shape(path) {
        Shape::Fields(fields) => {
            let mut properties = Map::new();
            for field in fields {
                path.push((*field).to_owned());
                properties.insert((*field).to_owned(), schema_at(path, rows));
                path.pop();
            }
            schema.insert("properties".to_owned(), properties.into());
            schema.insert("additionalProperties".to_owned(), false.into());
            // Serde would also take a list of the values.
            types.retain(|name| *name == "null");
            types.push("object");
        }
        Shape::Map => {
            path.push(ANY.to_owned());
            let each = schema_at(path, rows);
            path.pop();
            schema.insert("additionalProperties".to_owned(), each);
        }
        Shape::Value => {}
    }
    assert!(!types.is_empty(), "no sample is taken at {path:?}");
    let all = |types: &[&str]| types.len() == samples().len() - 1;
    if types.contains(&"array") && !all(&types) {
        let items = self::types(path, |value| json!([value]));
        schema.insert("items".to_owned(), json!({ "type": items }));
    }
    if !all(&types) {
        schema.insert("type".to_owned(), types.into());
    }
    schema.into()
}

/// The whole of it, and the keys of the table that it has not.
fn made() -> (Value, BTreeMap<String, String>) {
    let mut rows = documented();
    let mut whole = schema_at(&mut Vec::new(), &mut rows);
    let schema = whole.as_object_mut().unwrap();
    schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".to_owned(), "Configuration of Disbatch".into());
    schema.insert("required".to_owned(), json!(MUST_BE_THERE));
    (whole, rows)
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config.schema.json")
}

fn stored() -> Value {
    serde_json::from_str(&fs::read_to_string(file()).unwrap()).unwrap()
}

/// What is wrong with a configuration by the stored schema.
fn problems(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(&to_strict(text)).unwrap();
    let schema = Schema::compile(&stored()).unwrap();
    let checked = schema.check(&value, Instant::now() + Duration::from_secs(5));
    checked.err().map(|wrong| format!("{wrong:?}"))
}

#[test]
fn the_schema_is_that_of_the_code() {
    let (made, left) = made();
    if std::env::var_os("DISBATCH_RENEW").is_some() {
        fs::write(file(), serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
    }
    assert_eq!(stored(), made, "config.schema.json: run this test with DISBATCH_RENEW=1");
    // Parts of values that the code reads as a whole.
    let parts = ["attributes.ssl.", "log4perl."];
    let unknown: Vec<_> = left.keys().filter(|key| !parts.iter().any(|part| key.starts_with(part))).collect();
    assert!(unknown.is_empty(), "docs/operators.md has keys that there are not: {unknown:?}");
}

#[test]
fn every_key_is_documented() {
    let schema = stored();
    let undocumented: Vec<&String> = schema["properties"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, schema)| schema.get("description").is_none())
        .filter(|(_, schema)| {
            let parts = schema.get("properties").and_then(Value::as_object);
            // Sections have a row for each key.
            !parts.is_some_and(|parts| parts.values().any(|part| part.get("description").is_some()))
        })
        .map(|(key, _)| key)
        .collect();
    assert_eq!(undocumented, ["log4perl"], "the table of docs/operators.md");
}

#[test]
fn the_shipped_example_and_those_of_the_documentation_are_valid() {
    assert_eq!(problems(include_str!("../../../../../config.example.json")), None);
    assert_eq!(problems(include_str!("../../../../../packaging/compose/config.json")), None);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let keys = stored();
    let mut found = 0;
    for folder in [docs.clone(), docs.join("engines")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let page = fs::read_to_string(&path).unwrap();
            for block in page.split("\n```").skip(1).step_by(2) {
                let text = block.split_once('\n').map_or("", |(_, text)| text).trim();
                let key = text.strip_prefix('"').and_then(|rest| rest.split_once("\":")).map(|(key, _)| key);
                if key.is_some_and(|key| keys["properties"].get(key).is_some()) {
                    found += 1;
                    let whole = format!("{{\"mongohost\": \"h\", \"database\": \"d\",\n{text}\n}}");
                    assert_eq!(problems(&whole), None, "{}: {text}", path.display());
                }
            }
        }
    }
    assert!(found > 10, "only {found} examples were found");
}

#[test]
fn what_the_schema_refuses() {
    let whole = |rest: &str| format!(r#"{{"mongohost": "h", "database": "d", {rest}}}"#);
    assert_eq!(problems(&whole(r#""$schema": "config.schema.json", "labels": {"gpu": "yes"}"#)), None);
    for (wrong, place) in [
        (whole(r#""treads": 1"#), "treads"),
        (whole(r#""balance": {"enabeld": 1}"#), "enabeld"),
        (whole(r#""lease": "soon""#), "/lease"),
        (whole(r#""plugin_dirs": "plugins""#), "/plugin_dirs"),
        (whole(r#""inbox": {"producers": {"shop": {"owners": "shop"}}}"#), "owners"),
        (r#"{"mongohost": "h"}"#.to_owned(), "database"),
    ] {
        let problems = problems(&wrong).unwrap_or_default();
        assert!(problems.contains(place), "{wrong}: {problems}");
    }
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// An object with these keys.
    Fields(&'static [&'static str]),
    /// An object with any keys, whose values are alike.
    Map,
    /// Anything else, or an object that the code looks through by itself.
    Value,
}

/// What `Deserialize` of [`Config`] wants at a place: it is led there, and what it asks for is noted.
fn shape(path: &[String]) -> Shape {
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
