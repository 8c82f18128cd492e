//! Types of JSON, and values in messages.

use serde_json::Value;

/// The types, each a bit.
pub(super) const TYPES: [(&str, u8); 7] = [
    ("null", 1),
    ("boolean", 2),
    ("integer", 4),
    ("number", 8),
    ("string", 16),
    ("array", 32),
    ("object", 64),
];

/// So many values are in a message.
const NAMED: usize = 12;

/// A message has so many bytes of values.
const LONGEST: usize = 300;

/// The bit of the type with this name.
pub(super) fn bit(name: &str) -> Option<u8> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
}

/// The bits of the types that a value has: a whole number is an integer, too.
pub(super) fn bits_of(value: &Value) -> u8 {
    match value {
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => 4 | 8,
        Value::Number(_) => 8,
        Value::String(_) => 16,
        Value::Array(_) => 32,
        Value::Object(_) => 64,
    }
}

/// Types in words: `integer or null`.
pub(super) fn types(bits: u8) -> String {
    let named = TYPES.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name);
    named.collect::<Vec<_>>().join(" or ")
}

/// The type of a value in a word.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if bits_of(value) & 4 != 0 => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Values in words, as far as that is not long.
pub(super) fn values(values: &[Value]) -> String {
    let mut text = String::new();
    for (index, value) in values.iter().enumerate() {
        let shown = value.to_string();
        if index == NAMED || text.len() + shown.len() > LONGEST {
            text.push_str(", ..");
            break;
        }
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(&shown);
    }
    text
}

/// As much of a text as a message bears.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(100) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}..", text.get(..end).unwrap_or_default()),
    }
}
