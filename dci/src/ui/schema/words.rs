//! What a parameter is, in words.

use serde_json::Value;

use super::{Field, Kind, Number, Row};

/// What a value is, and what it must be like.
pub(super) fn words(kind: &Kind, schema: &Value) -> Vec<String> {
    let mut words = match kind {
        Kind::Text(text) => {
            let mut words = vec!["text".to_owned()];
            words.extend(schema["format"].as_str().map(|format| format!("format {format}")));
            words.extend(range(text.least, text.most, "characters"));
            words.extend(text.pattern.as_ref().map(|pattern| format!("matches {pattern}")));
            words
        }
        Kind::Number(number) => of_number(number),
        Kind::Flag => vec!["true or false".to_owned()],
        Kind::Choice(choices) => {
            let labels: Vec<&str> = choices.iter().map(|choice| choice.value.as_str()).collect();
            vec![format!("one of {}", labels.join(", "))]
        }
        Kind::Several(choices) => {
            let labels: Vec<&str> = choices.iter().map(|choice| choice.value.as_str()).collect();
            vec![format!("any of {}", labels.join(", "))]
        }
        Kind::Lines(lines) => {
            let of =
                lines.of.as_ref().map_or_else(|| "text".to_owned(), |number| of_number(number).join(", "));
            let mut words = vec![format!("list of {of}")];
            words.extend(range(lines.least, lines.most, "items"));
            words
        }
        Kind::Group(_) => vec!["object".to_owned()],
        Kind::Json(json) if json.types.is_empty() => vec!["anything".to_owned()],
        Kind::Json(json) => {
            let names: Vec<&str> = json.types.iter().map(|name| type_word(name)).collect();
            vec![names.join(" or ")]
        }
    };
    if let Some(examples) = schema["examples"].as_array().filter(|examples| !examples.is_empty()) {
        let examples: Vec<String> = examples.iter().map(Value::to_string).collect();
        words.push(format!("for example {}", examples.join(", ")));
    }
    words
}

pub(super) fn type_word(name: &str) -> &str {
    match name {
        "string" => "text",
        "boolean" => "true or false",
        "array" => "list",
        other => other,
    }
}

fn of_number(number: &Number) -> Vec<String> {
    let mut words = vec![if number.integer { "integer" } else { "number" }.to_owned()];
    let bound = |bound: Option<(f64, bool)>, itself: &str, beyond: &str| {
        bound.map(|(value, is_itself)| format!("{} {value}", if is_itself { itself } else { beyond }))
    };
    words.extend(bound(number.least, "from", "more than"));
    words.extend(bound(number.most, "up to", "less than"));
    words.extend(number.step.map(|step| format!("in steps of {step}")));
    words
}

fn range(least: Option<u64>, most: Option<u64>, what: &str) -> Option<String> {
    match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most} {what}")),
        (Some(least), None) => Some(format!("at least {least} {what}")),
        (None, Some(most)) => Some(format!("at most {most} {what}")),
        (None, None) => None,
    }
}

/// All parameters, each followed by those that are in it.
pub(super) fn rows(fields: &[Field]) -> Vec<Row> {
    let mut rows = Vec::new();
    add(fields, "", &mut rows);
    rows
}

fn add(fields: &[Field], within: &str, rows: &mut Vec<Row>) {
    for field in fields {
        let name = if within.is_empty() { field.key.clone() } else { format!("{within}.{}", field.key) };
        rows.push(Row {
            name: name.clone(),
            words: field.words.join(", "),
            required: field.required,
            default: field.default.clone().unwrap_or_default(),
            description: field.description.clone(),
        });
        if let Kind::Group(fields) = &field.kind {
            add(fields, &name, rows);
        }
    }
}
