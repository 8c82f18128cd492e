//! From a schema to fields.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::{Choice, Field, Kind, Lines, Number, Text, words};

/// Objects within objects beyond this are given as JSON.
const DEPTH: usize = 5;

/// So many references are followed, one after the other.
const REFERENCES: usize = 8;

/// A form with more fields helps nobody; the rest can be given as JSON.
const MOST_FIELDS: usize = 200;

/// Text that may be longer than this gets several lines.
const LONG: u64 = 500;

const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "null"];

struct Place<'a> {
    whole: &'a Value,
    pointer: &'a str,
    depth: usize,
    /// How many fields the form may still have: it is one budget for all objects within objects.
    left: &'a Cell<usize>,
    /// Whether that in which it is must be there.
    demanded: bool,
}

pub(super) fn fields(schema: &Value) -> Vec<Field> {
    let left = Cell::new(MOST_FIELDS);
    let place = Place { whole: schema, pointer: "", depth: 0, left: &left, demanded: true };
    of_object(resolved(schema, schema), &place)
}

fn of_object(schema: &Value, place: &Place<'_>) -> Vec<Field> {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = schema["properties"].as_object();
    let count = properties.map_or(0, Map::len).min(MOST_FIELDS);
    // Before the fields themselves: objects among them have what is left.
    place.left.set(place.left.get().saturating_sub(count));
    let properties = properties.into_iter().flatten().take(count);
    let field = |(key, schema): (&String, &Value)| {
        let is_required = required.iter().any(|name| name == key);
        field(key, resolved(schema, place.whole), is_required, place)
    };
    let mut fields: Vec<Field> = properties.map(field).collect();
    // What must be given comes first.
    fields.sort_by_key(|field| !field.required);
    fields
}

fn field(key: &str, schema: &Value, required: bool, place: &Place<'_>) -> Field {
    let pointer = format!("{}/{}", place.pointer, key.replace('~', "~0").replace('/', "~1"));
    let demanded = required && place.demanded;
    let depth = place.depth + 1;
    let inner = Place { whole: place.whole, pointer: &pointer, depth, left: place.left, demanded };
    let kind = kind(schema, &inner);
    let default = schema.get("default");
    let title = schema["title"].as_str().map(|title| format!("{title}. ")).unwrap_or_default();
    let mut field = Field {
        key: key.to_owned(),
        description: format!("{title}{}", schema["description"].as_str().unwrap_or_default()),
        required,
        demanded,
        words: words(&kind, schema),
        kind,
        value: String::new(),
        default: default.map(Value::to_string),
        pointer,
    };
    if let Some(default) = default.filter(|default| !default.is_null()) {
        fill_one(&mut field, default);
    }
    field
}

fn resolved<'a>(mut schema: &'a Value, whole: &'a Value) -> &'a Value {
    for _ in 0..REFERENCES {
        let Some(reference) = schema["$ref"].as_str() else { return schema };
        let Some(target) = reference.strip_prefix('#').and_then(|pointer| whole.pointer(pointer)) else {
            return schema;
        };
        schema = target;
    }
    schema
}

fn kind(schema: &Value, place: &Place<'_>) -> Kind {
    if let Some(choices) = choices(schema) {
        return Kind::Choice(choices);
    }
    let types = types(schema, place.whole);
    let is_plain = ["oneOf", "anyOf", "allOf", "not", "if"].iter().all(|key| schema.get(key).is_none());
    let loose = Kind::Json(types.clone());
    // Null is what is left out.
    let mut named = types.into_iter().filter(|name| *name != "null");
    match (named.next(), named.next()) {
        (Some(one), None) if is_plain => of_type(one, schema, place).unwrap_or(loose),
        _ => loose,
    }
}

fn of_type(name: &str, schema: &Value, place: &Place<'_>) -> Option<Kind> {
    Some(match name {
        "string" => Kind::Text(text(schema)),
        "integer" | "number" => Kind::Number(number(name, schema)),
        "boolean" => Kind::Flag,
        "array" => return array(schema, place.whole),
        "object" if place.depth < DEPTH && fits(schema, place) => Kind::Group(of_object(schema, place)),
        _ => return None, // Its keys are not known, or too many.
    })
}

/// Whether an object has keys that are known, and all of them still have a place in the form.
fn fits(schema: &Value, place: &Place<'_>) -> bool {
    let keys = schema["properties"].as_object().map_or(0, Map::len);
    (1..=place.left.get()).contains(&keys)
}

/// The types that a schema allows, as far as it says so itself or in its alternatives; none for all.
fn types(schema: &Value, whole: &Value) -> Vec<&'static str> {
    let known = |name: &Value| TYPES.into_iter().find(|known| name == known);
    let own: Vec<&'static str> = match &schema["type"] {
        Value::String(_) => known(&schema["type"]).into_iter().collect(),
        Value::Array(names) => names.iter().filter_map(known).collect(),
        _ if schema.get("properties").is_some() => vec!["object"],
        _ => Vec::new(), // It does not say so.
    };
    if !own.is_empty() {
        return own;
    }
    let Some(alternatives) = ["oneOf", "anyOf"].iter().find_map(|key| schema[key].as_array()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for alternative in alternatives {
        match known(&resolved(alternative, whole)["type"]) {
            Some(name) => all.push(name),
            None => return Vec::new(), // It may be anything.
        }
    }
    all
}

fn choices(schema: &Value) -> Option<Vec<Choice>> {
    let values = match (schema["enum"].as_array(), schema.get("const")) {
        (Some(values), _) => values.clone(),
        (None, Some(value)) => vec![value.clone()],
        (None, None) => return None,
    };
    let choice = |value: &Value| Choice { value: value.to_string(), label: as_text(value), chosen: false };
    Some(values.iter().map(choice).collect())
}

fn text(schema: &Value) -> Text {
    let most = schema["maxLength"].as_u64();
    let format = schema["format"].as_str().unwrap_or_default();
    let input = match format {
        "email" => "email",
        "uri" | "url" => "url",
        "date" => "date",
        _ => "text", // Nothing that a browser has a control for with the same values.
    };
    Text {
        input,
        long: matches!(format, "textarea" | "multiline") || most.is_some_and(|most| most > LONG),
        least: schema["minLength"].as_u64(),
        most,
        pattern: schema["pattern"].as_str().map(str::to_owned),
    }
}

fn number(name: &str, schema: &Value) -> Number {
    let bound = |itself: &str, beyond: &str| {
        let itself = schema[itself].as_f64().map(|bound| (bound, true));
        schema[beyond].as_f64().map(|bound| (bound, false)).or(itself)
    };
    Number {
        integer: name == "integer",
        least: bound("minimum", "exclusiveMinimum"),
        most: bound("maximum", "exclusiveMaximum"),
        step: schema["multipleOf"].as_f64().filter(|step| *step > 0.0),
    }
}

fn array(schema: &Value, whole: &Value) -> Option<Kind> {
    let items = resolved(&schema["items"], whole);
    if let Some(choices) = choices(items) {
        return Some(Kind::Several(choices));
    }
    let of = match types(items, whole)[..] {
        ["string"] => None,
        [name @ ("integer" | "number")] => Some(number(name, items)),
        _ => return None, // What does not fit on a line.
    };
    Some(Kind::Lines(Lines { of, least: schema["minItems"].as_u64(), most: schema["maxItems"].as_u64() }))
}

pub(super) fn fill(fields: &mut [Field], params: &Map<String, Value>) {
    for field in fields {
        match params.get(&field.key) {
            Some(value) => fill_one(field, value),
            None => empty(field),
        }
    }
}

fn fill_one(field: &mut Field, value: &Value) {
    if value.is_null() && !matches!(field.kind, Kind::Json(_) | Kind::Choice(_)) {
        return empty(field);
    }
    match &mut field.kind {
        Kind::Group(fields) => {
            if let Some(values) = value.as_object() {
                fill(fields, values);
            }
        }
        Kind::Choice(choices) => {
            let value = value.to_string();
            choices.iter_mut().for_each(|choice| choice.chosen = choice.value == value);
        }
        Kind::Several(choices) => {
            let values: Vec<String> = value.as_array().into_iter().flatten().map(Value::to_string).collect();
            choices.iter_mut().for_each(|choice| choice.chosen = values.contains(&choice.value));
        }
        Kind::Lines(_) => {
            let lines: Vec<String> = value.as_array().into_iter().flatten().map(as_text).collect();
            field.value = lines.join("\n");
        }
        Kind::Json(_) => field.value = as_json(value),
        Kind::Text(text) => {
            field.value = as_text(value);
            text.long |= field.value.contains('\n');
        }
        Kind::Number(_) | Kind::Flag => field.value = as_text(value),
    }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Text as it is where that is no other JSON.
fn as_json(value: &Value) -> String {
    match value {
        Value::String(text) if serde_json::from_str::<Value>(text).is_err() => text.clone(),
        other => other.to_string(),
    }
}

fn empty(field: &mut Field) {
    field.value.clear();
    match &mut field.kind {
        Kind::Group(fields) => fields.iter_mut().for_each(empty),
        Kind::Choice(choices) | Kind::Several(choices) => {
            choices.iter_mut().for_each(|choice| choice.chosen = false);
        }
        Kind::Text(_) | Kind::Number(_) | Kind::Flag | Kind::Lines(_) | Kind::Json(_) => {}
    }
}
