//! The description in OpenAPI 3.0, for generators of clients that cannot read 3.1. What a schema allows stays the same, save for
//! `propertyNames`, which 3.0 does not know. What may come as JSON or as a form is described as JSON, since generators make one of both.

use serde_json::{Map, Value, json};

const VERSION: &str = "3.0.3";

const JSON: &str = "application/json";

/// A schema that allows null alone, as it is told here.
fn only_null() -> Value {
    json!({ "nullable": true, "enum": [null] })
}

pub fn of(description: &Value) -> Value {
    let mut older = converted(description);
    older["openapi"] = VERSION.into();
    if let Some(license) = older.pointer_mut("/info/license").and_then(Value::as_object_mut) {
        license.remove("identifier");
    }
    let operations = older.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, operation) in operations.filter_map(|(_, path)| path.as_object_mut()).flatten() {
        let content = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut);
        if let Some(content) = content.filter(|content| content.contains_key(JSON)) {
            content.retain(|kind, _| kind == JSON);
        }
    }
    older
}

fn converted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(converted).collect(),
        Value::Object(map) => {
            schema(map.iter().map(|(key, value)| (key.clone(), converted(value))).collect())
        }
        plain => plain.clone(),
    }
}

/// Anything that is not a schema has none of these keys with such values.
fn schema(mut map: Map<String, Value>) -> Value {
    match map.get("type") {
        Some(Value::String(kind)) if kind == "null" => return only_null(),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<Value> = kinds.iter().filter(|kind| *kind != "null").cloned().collect();
            map.insert("nullable".to_owned(), true.into());
            match <[Value; 1]>::try_from(kinds) {
                Ok([kind]) => map.insert("type".to_owned(), kind),
                Err(kinds) => {
                    let each = kinds.into_iter().map(|kind| json!({ "type": kind })).collect();
                    map.remove("type");
                    map.insert("anyOf".to_owned(), each)
                }
            };
        }
        _ => {}
    }
    for key in ["oneOf", "anyOf"] {
        without_null(&mut map, key);
    }
    // A bound is beside what says that it is left out.
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(limit) = map.get(exclusive).filter(|limit| limit.is_number()).cloned() {
            map.insert(bound.to_owned(), limit);
            map.insert(exclusive.to_owned(), true.into());
        }
    }
    // A property of that name has no type beside it.
    if map.get("type").is_some_and(Value::is_string) {
        map.remove("propertyNames");
    }
    // What stands beside a reference is not read.
    if map.len() > 1
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
    map.into()
}

/// One of some schemas or null: one of the schemas, which may be null.
fn without_null(map: &mut Map<String, Value>, key: &str) {
    let Some(Value::Array(schemas)) = map.get(key) else { return };
    let mut rest: Vec<Value> = schemas.iter().filter(|schema| **schema != only_null()).cloned().collect();
    if rest.is_empty() || rest.len() == schemas.len() {
        return;
    }
    map.insert("nullable".to_owned(), true.into());
    if rest.len() > 1 || map.contains_key("allOf") {
        map.insert(key.to_owned(), rest.into());
        return;
    }
    map.remove(key);
    match rest.pop() {
        Some(Value::Object(one)) if !one.contains_key("$ref") => {
            one.into_iter().for_each(|(key, value)| {
                // A reference with something beside it: generators know it as one of one.
                let key = if key == "allOf" { "oneOf".to_owned() } else { key };
                map.entry(key).or_insert(value);
            });
        }
        reference => drop(map.insert("oneOf".to_owned(), reference.into_iter().collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_told_in_the_old_way() {
        for (newer, older) in [
            (
                json!({ "type": ["string", "null"], "maxLength": 3 }),
                json!({ "type": "string", "nullable": true, "maxLength": 3 }),
            ),
            (
                json!({ "type": ["integer", "string", "null"] }),
                json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "nullable": true }),
            ),
            (
                json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/a" }], "description": "d" }),
                json!({ "oneOf": [{ "$ref": "#/a" }], "nullable": true, "description": "d" }),
            ),
            (
                json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/a", "description": "d" }] }),
                json!({ "oneOf": [{ "$ref": "#/a" }], "nullable": true, "description": "d" }),
            ),
            (
                json!({ "anyOf": [{ "type": "null" }, { "type": "string" }, { "$ref": "#/a" }] }),
                json!({ "anyOf": [{ "type": "string" }, { "$ref": "#/a" }], "nullable": true }),
            ),
            (json!({ "type": "null" }), only_null()),
            (
                json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
                json!({ "type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 1 }),
            ),
            // A property of that name is no such key.
            (
                json!({ "properties": { "type": { "type": "string" }, "propertyNames": {} } }),
                json!({ "properties": { "type": { "type": "string" }, "propertyNames": {} } }),
            ),
        ] {
            assert_eq!(converted(&newer), older, "{newer}");
        }
    }

    #[test]
    fn nothing_of_the_newer_version_is_left() {
        fn visit(value: &Value, path: &str) {
            match value {
                Value::Object(map) => {
                    assert!(!map.get("type").is_some_and(|kind| kind.is_array() || kind == "null"), "{path}");
                    assert!(!map.contains_key("$ref") || map.len() == 1, "{path}");
                    let newer = ["const", "propertyNames", "prefixItems", "patternProperties", "$defs", "if"];
                    let is_named = path.ends_with("/properties");
                    assert!(is_named || !newer.iter().any(|key| map.contains_key(*key)), "{path}");
                    for bound in ["exclusiveMinimum", "exclusiveMaximum"] {
                        assert!(!map.get(bound).is_some_and(Value::is_number), "{path}");
                    }
                    map.iter().for_each(|(key, value)| visit(value, &format!("{path}/{key}")));
                }
                Value::Array(items) => items.iter().for_each(|value| visit(value, path)),
                _ => {} // Nothing that depends on the version.
            }
        }
        let older = of(super::super::description());
        assert_eq!(older["openapi"], VERSION);
        assert_eq!(
            older["paths"].as_object().map(Map::len),
            super::super::description()["paths"].as_object().map(Map::len)
        );
        visit(&older, "");
    }
}
