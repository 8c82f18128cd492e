//! What a document of the inbox must be: `contract/inbox.schema.json`, as far as that uses JSON Schema.

use std::slice;
use std::sync::LazyLock;

use serde_json::Value;

pub(crate) static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("inbox.schema.json")).unwrap_or_default());

/// How a document, as relaxed extended JSON, is not what the schema says.
pub(crate) fn problem(document: &Value) -> Option<String> {
    wrong(document, &SCHEMA, "the document")
}

fn wrong(value: &Value, rule: &Value, name: &str) -> Option<String> {
    let referred = rule["$ref"].as_str().and_then(|path| SCHEMA.pointer(path.trim_start_matches('#')));
    let rule = referred.unwrap_or(rule);
    let about = rule["description"].as_str().unwrap_or_default();
    if rule.get("not").is_some() {
        return Some(format!("{name}: {about}"));
    }
    if !fits(value, rule) {
        return Some(format!("{name} must be {about}"));
    }
    let (fields, known) = (value.as_object()?, rule["properties"].as_object()?);
    let mut required = rule["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(lacking) = required.find(|name| !fields.contains_key(*name)) {
        return Some(format!("{lacking} is missing"));
    }
    fields.iter().find_map(|(key, one)| {
        let Some(rule) = known.get(key) else {
            let known = known.iter().filter(|(_, rule)| rule.get("not").is_none());
            let known = known.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            return Some(format!("{key} is unknown; known are {known}"));
        };
        wrong(one, rule, key)
    })
}

fn fits(value: &Value, rule: &Value) -> bool {
    let types = match &rule["type"] {
        Value::Null => &[],
        Value::Array(types) => types.as_slice(),
        one => slice::from_ref(one),
    };
    if !types.is_empty() && !types.iter().any(|one| one.as_str().is_some_and(|one| is_a(value, one))) {
        return false;
    }
    if rule["anyOf"].as_array().is_some_and(|rules| rules.iter().all(|one| wrong(value, one, "").is_some())) {
        return false;
    }
    // 1 and 1.0 are the same.
    if rule
        .get("const")
        .is_some_and(|only| value != only && value.as_f64() != only.as_f64().or(Some(f64::NAN)))
        || rule["enum"].as_array().is_some_and(|all| !all.contains(value))
    {
        return false;
    }
    let (size, least, most) = match value {
        Value::Number(number) => (number.as_f64(), "minimum", "maximum"),
        Value::String(text) => (Some(text.chars().count() as f64), "minLength", "maxLength"),
        Value::Array(items) => (Some(items.len() as f64), "minItems", "maxItems"),
        Value::Null | Value::Bool(_) | Value::Object(_) => return true,
    };
    let size = size.unwrap_or(f64::NAN);
    rule[least].as_f64().is_none_or(|least| size >= least)
        && rule[most].as_f64().is_none_or(|most| size <= most)
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false, // JSON has no others.
    }
}
