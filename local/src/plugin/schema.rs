//! Looks for mistakes in the JSON Schema of a plugin's parameters. It is not whether it is one by the letter that matters, but whether
//! its author has meant what it says.

use serde_json::{Map, Value};

/// Schemas that are deeper are not looked at any more.
const DEEPEST: usize = 64;

/// The types that there are.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Keys whose values are schemas by name.
const BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Keys whose value is a schema.
const ONE: [&str; 7] = ["additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"];

/// Keys whose value is a list of schemas.
const SEVERAL: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Keys of which the first must not be greater than the second.
const RANGES: [(&str, &str); 4] = [
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
];

/// The mistakes in the schema of `params`, each with where it is.
pub fn mistakes(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(kind) = schema.get("type").filter(|kind| !allows(kind, "object")) {
        found.push(format!("params.type: params is an object, so this must be \"object\", and is {kind}"));
    }
    look(schema, "params", 0, &mut found);
    found
}

/// What is odd about the parameters that forms begin with, by the schema.
pub fn mistakes_in_template(schema: &Value, params: &Map<String, Value>) -> Vec<String> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let mut found = Vec::new();
    for (name, value) in params {
        match properties.get(name) {
            Some(property) if !has_type(property, value) => {
                found.push(format!("template.params.{name}: is not of the type that params has for it"));
            }
            None if is_closed => found.push(format!("template.params.{name}: params knows no such property")),
            _ => {} // It fits, or nothing is known of it.
        }
    }
    found
}

fn look(schema: &Value, at: &str, depth: usize, found: &mut Vec<String>) {
    let schema = match schema {
        Value::Bool(_) => return,
        Value::Object(schema) if depth < DEEPEST => schema,
        Value::Object(_) => return,
        other => return found.push(format!("{at}: expected an object that is a schema, got {other}")),
    };
    look_at_type(schema, at, found);
    look_at_properties(schema, at, found);
    for (least, most) in RANGES {
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        if number(least).zip(number(most)).is_some_and(|(least, most)| least > most) {
            found.push(format!("{at}.{least}: is greater than {most}"));
        }
    }
    if schema.get("enum").is_some_and(|list| list.as_array().is_none_or(Vec::is_empty)) {
        found.push(format!("{at}.enum: expected a list of values"));
    }
    for key in BY_NAME {
        let Some(value) = schema.get(key) else { continue };
        match value.as_object() {
            Some(each) => {
                for (name, inner) in each {
                    look(inner, &format!("{at}.{key}.{name}"), depth + 1, found);
                }
            }
            None => found.push(format!("{at}.{key}: expected an object of schemas by name")),
        }
    }
    for key in ONE {
        if let Some(inner) = schema.get(key) {
            look(inner, &format!("{at}.{key}"), depth + 1, found);
        }
    }
    for key in SEVERAL {
        match schema.get(key).map(Value::as_array) {
            None => {}
            Some(Some(list)) if !list.is_empty() => look_at_all(list, &format!("{at}.{key}"), depth, found),
            Some(_) => found.push(format!("{at}.{key}: expected a list of schemas")),
        }
    }
    match schema.get("items") {
        None => {}
        Some(Value::Array(list)) => look_at_all(list, &format!("{at}.items"), depth, found),
        Some(inner) => look(inner, &format!("{at}.items"), depth + 1, found),
    }
}

fn look_at_all(list: &[Value], at: &str, depth: usize, found: &mut Vec<String>) {
    for (index, inner) in list.iter().enumerate() {
        look(inner, &format!("{at}[{index}]"), depth + 1, found);
    }
}

fn look_at_type(schema: &Map<String, Value>, at: &str, found: &mut Vec<String>) {
    let Some(kind) = schema.get("type") else { return };
    let is_known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let is_right = match kind {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(is_known),
        kind => is_known(kind),
    };
    if !is_right {
        return found.push(format!("{at}.type: expected one of {}, got {kind}", TYPES.join(", ")));
    }
    let whole = Value::Object(schema.clone());
    if schema.get("default").is_some_and(|default| !has_type(&whole, default)) {
        found.push(format!("{at}.default: is not of the type {kind}"));
    }
}

fn look_at_properties(schema: &Map<String, Value>, at: &str, found: &mut Vec<String>) {
    let Some(required) = schema.get("required") else { return };
    let Some(names) = required.as_array().filter(|names| names.iter().all(Value::is_string)) else {
        return found.push(format!("{at}.required: expected a list of names, got {required}"));
    };
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for name in names.iter().filter_map(Value::as_str).filter(|name| !properties.contains_key(*name)) {
        found.push(format!("{at}.required: names {name:?}, which properties do not have"));
    }
}

/// Whether `type` of a schema allows this one.
fn allows(kind: &Value, wanted: &str) -> bool {
    match kind {
        Value::String(kind) => kind == wanted,
        Value::Array(kinds) => kinds.iter().any(|kind| kind == wanted),
        _ => true, // It is told of elsewhere that this is no type.
    }
}

/// Whether a value is of the type that a schema wants, if it wants one.
fn has_type(schema: &Value, value: &Value) -> bool {
    let Some(kind) = schema.get("type") else { return true };
    let own = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    allows(kind, own) || (is_whole && allows(kind, "integer"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_right_is_not_complained_about() {
        for schema in [
            json!({}),
            json!(true),
            json!({
                "type": "object", "required": ["to"], "additionalProperties": false, "$defs": { "a": true },
                "properties": {
                    "to": { "type": ["string", "null"], "default": null },
                    "count": { "type": "integer", "default": 5, "minimum": 1, "maximum": 9 },
                    "list": { "type": "array", "items": { "enum": [1, 2] } },
                    "any": { "anyOf": [{ "$ref": "#/$defs/a" }, { "type": "number", "default": 1 }] },
                },
            }),
        ] {
            assert_eq!(mistakes(&schema), Vec::<String>::new(), "{schema}");
        }
    }

    #[test]
    fn mistakes_are_named_with_where_they_are() {
        for (schema, expected) in [
            (json!(5), "params: expected an object that is a schema, got 5"),
            (json!({ "type": "string" }), "params.type: params is an object"),
            (json!({ "properties": [] }), "params.properties: expected an object of schemas"),
            (
                json!({ "properties": { "a": { "type": "text" } } }),
                "params.properties.a.type: expected one of",
            ),
            (json!({ "properties": { "a": 1 } }), "params.properties.a: expected an object"),
            (json!({ "properties": {}, "required": ["to"] }), "params.required: names \"to\", which"),
            (json!({ "required": "to" }), "params.required: expected a list of names"),
            (
                json!({ "properties": { "a": { "type": "integer", "default": 1.5 } } }),
                "params.properties.a.default: is not of the type \"integer\"",
            ),
            (
                json!({ "properties": { "a": { "minimum": 2, "maximum": 1 } } }),
                "params.properties.a.minimum: is",
            ),
            (json!({ "properties": { "a": { "items": [5] } } }), "params.properties.a.items[0]: expected"),
            (json!({ "anyOf": [] }), "params.anyOf: expected a list of schemas"),
            (json!({ "properties": { "a": { "enum": [] } } }), "params.properties.a.enum: expected a list"),
        ] {
            let found = mistakes(&schema);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{schema}: {found:?}");
        }
    }

    #[test]
    fn what_forms_begin_with_fits_the_schema() {
        let schema = json!({ "properties": { "n": { "type": "integer" } }, "additionalProperties": false });
        let of = |params: Value| mistakes_in_template(&schema, params.as_object().unwrap());
        assert!(of(json!({ "n": 5 })).is_empty());
        assert!(of(json!({ "n": "5" }))[0].starts_with("template.params.n: is not of the type"));
        assert!(of(json!({ "m": 5 }))[0].starts_with("template.params.m: params knows no"));
    }

    #[test]
    fn no_depth_is_too_much() {
        let deep = (0..500).fold(json!(5), |inner, _| json!({ "not": inner }));
        assert!(mistakes(&deep).is_empty());
    }
}
