//! A plugin's JSON Schema of `params` as a form, as a table, and as what a filled form is checked by. Whatever a form has
//! no field for is given as JSON in one.
//!
//! Patterns are checked by the browser alone, with its own regular expressions, which are those of JSON Schema.

mod parse;
mod read;

use actix_web::http::StatusCode;
use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::schema::Problem;
use serde_json::{Map, Value, json};

use crate::error::HttpError;

/// The parameters of a plugin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Form {
    /// In the order of the schema's names.
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Template)]
#[template(path = "schema/field.html")]
pub struct Field {
    /// Where it is, as a JSON Pointer: also the name of its control.
    pub pointer: String,
    key: String,
    pub description: String,
    /// Whether it must be there, where that in which it is is there.
    pub required: bool,
    /// Whether it must be there in any case.
    demanded: bool,
    kind: Kind,
    /// What the control has at first.
    value: String,
    /// What the schema says is meant when it is left out, as JSON.
    pub default: Option<String>,
    /// What it is, and what its values must be like, in words.
    pub words: Vec<String>,
}

impl HtmlSafe for Field {}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text(Text),
    Number(Number),
    Flag,
    Choice(Vec<Choice>),
    /// Any of them.
    Several(Vec<Choice>),
    Lines(Lines),
    Group(Vec<Field>),
    /// Any JSON of these types; of all types if there is none.
    Json(Vec<&'static str>),
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Text {
    /// The type of its control.
    input: &'static str,
    /// Whether it may have several lines.
    long: bool,
    least: Option<u64>,
    most: Option<u64>,
    pattern: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Number {
    integer: bool,
    /// The least, and whether it is that itself.
    least: Option<(f64, bool)>,
    most: Option<(f64, bool)>,
    step: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Choice {
    /// As JSON.
    value: String,
    label: String,
    chosen: bool,
}

/// Several values of one kind.
#[derive(Debug, Clone, PartialEq)]
struct Lines {
    /// What each of them is: numbers, or text if that is none.
    of: Option<Number>,
    least: Option<u64>,
    most: Option<u64>,
}

impl Form {
    /// The form for a schema. One that makes no sense has no fields.
    pub fn of(schema: &Value) -> Self {
        Self { fields: parse::fields(schema) }
    }

    /// The same with values of a task in place of the schema's defaults.
    pub fn with(mut self, params: &Map<String, Value>) -> Self {
        parse::fill(&mut self.fields, params);
        self
    }

    /// The same where nobody needs to give the parameter `key`.
    pub fn without_need_of(mut self, key: &str) -> Self {
        for field in self.fields.iter_mut().filter(|field| field.key == key) {
            field.required = false;
        }
        self
    }

    /// What a filled form says: the names of its controls are the pointers of its fields. A control that is left empty is
    /// no parameter.
    pub fn read(&self, filled: &Map<String, Value>) -> Result<Map<String, Value>, Vec<Problem>> {
        let (params, problems) = read::all(&self.fields, filled);
        if problems.is_empty() { Ok(params) } else { Err(problems) }
    }

    /// The same of one that is not filled to the end: without what is wrong.
    pub fn draft(&self, filled: &Map<String, Value>) -> Map<String, Value> {
        read::all(&self.fields, filled).0
    }

    /// All parameters, each followed by those that are in it, with their keys after those in which they are: `address.city`.
    pub fn rows(&self) -> Vec<(String, &Field)> {
        let mut rows = Vec::new();
        add(&self.fields, "", &mut rows);
        rows
    }
}

impl Field {
    /// The id of its control, which must not have spaces.
    fn id(&self) -> String {
        self.pointer.chars().fold("param".to_owned(), |mut id, c| {
            if c.is_ascii_alphanumeric() || "/_-".contains(c) {
                id.push(c);
            } else {
                id.push_str(&format!(".{:x}", u32::from(c)));
            }
            id
        })
    }

    /// How many lines its control has at first, if it has several.
    fn lines(&self) -> usize {
        self.value.lines().count().clamp(2, 12)
    }
}

impl Number {
    /// The step of a control. Browsers count steps from the least value or from the default, and a schema from 0: what is
    /// no multiple is found when the form is read.
    fn steps(&self) -> &'static str {
        let from_whole = self.least.is_none_or(|(least, _)| least.fract() == 0.0);
        if self.integer && self.step.is_none() && from_whole { "1" } else { "any" }
    }
}

/// What is wrong with which fields, for people and for the page's script.
pub fn refused(problems: &[Problem]) -> HttpError {
    let words = |one: &Problem| format!("{} {}", one.pointer.strip_prefix('/').unwrap_or("it"), one.text);
    let told: Vec<String> = problems.iter().map(words).collect();
    let fields: Map<String, Value> =
        problems.iter().map(|one| (one.pointer.clone(), Value::from(one.text.as_str()))).collect();
    HttpError::with_body(StatusCode::BAD_REQUEST, json!({ "error": told.join("; "), "fields": fields }))
}

fn words(kind: &Kind, schema: &Value) -> Vec<String> {
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
        Kind::Choice(choices) | Kind::Several(choices) => {
            let values: Vec<&str> = choices.iter().map(|choice| choice.value.as_str()).collect();
            let most = if matches!(kind, Kind::Choice(_)) { "one" } else { "any" };
            vec![format!("{most} of {}", values.join(", "))]
        }
        Kind::Lines(lines) => {
            let of =
                lines.of.as_ref().map_or_else(|| "text".to_owned(), |number| of_number(number).join(", "));
            let mut words = vec![format!("list of {of}")];
            words.extend(range(lines.least, lines.most, "items"));
            words
        }
        Kind::Group(_) => vec!["object".to_owned()],
        Kind::Json(types) if types.is_empty() => vec!["anything".to_owned()],
        Kind::Json(types) => vec![type_words(types)],
    };
    if let Some(examples) = schema["examples"].as_array().filter(|examples| !examples.is_empty()) {
        let examples: Vec<String> = examples.iter().map(Value::to_string).collect();
        words.push(format!("for example {}", examples.join(", ")));
    }
    words
}

fn type_words(types: &[&'static str]) -> String {
    let word = |name: &&'static str| match *name {
        "string" => "text",
        "boolean" => "true or false",
        "array" => "list",
        other => other,
    };
    types.iter().map(word).collect::<Vec<_>>().join(" or ")
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

fn add<'a>(fields: &'a [Field], within: &str, rows: &mut Vec<(String, &'a Field)>) {
    for field in fields {
        let name = if within.is_empty() { field.key.clone() } else { format!("{within}.{}", field.key) };
        rows.push((name.clone(), field));
        if let Kind::Group(fields) = &field.kind {
            add(fields, &name, rows);
        }
    }
}

#[cfg(test)]
mod tests;
