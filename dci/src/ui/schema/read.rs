//! From a filled form to parameters.

use actix_web::http::StatusCode;
use serde_json::{Map, Number as JsonNumber, Value};

use super::{Choice, Field, Kind, Lines, Number, Problem, Text, type_words};

type Filled = Map<String, Value>;

/// What a field says: nothing if it is empty.
type Said = Result<Option<Value>, String>;

/// What all fields say, as far as they make sense, and what is wrong with the others.
pub(super) fn all(fields: &[Field], filled: &Filled) -> (Map<String, Value>, Vec<Problem>) {
    let mut problems = Vec::new();
    let params = object(fields, filled, &mut problems);
    (params, problems)
}

fn object(fields: &[Field], filled: &Filled, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let mut params = Map::new();
    for field in fields {
        let said = match &field.kind {
            Kind::Group(inner) if field.required || is_touched(inner, filled) => {
                Ok(Some(Value::Object(object(inner, filled, problems))))
            }
            Kind::Group(_) => Ok(None),
            kind => one(kind, &given(filled, &field.pointer)),
        };
        match said {
            Ok(Some(value)) => drop(params.insert(field.key.clone(), value)),
            Ok(None) if field.required => problems.push(problem(field, "must be given".to_owned())),
            Ok(None) => {}
            Err(text) => problems.push(problem(field, text)),
        }
    }
    params
}

fn problem(field: &Field, text: String) -> Problem {
    Problem { pointer: field.pointer.clone(), text }
}

/// The texts of a control: there may be several of one name.
fn given(filled: &Filled, pointer: &str) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let texts = match filled.get(pointer) {
        Some(Value::Array(values)) => values.iter().map(text).collect(),
        Some(value) => vec![text(value)],
        None => Vec::new(),
    };
    texts.into_iter().filter(|text: &String| !text.is_empty()).collect()
}

/// Whether something is given of an object that need not be there.
fn is_touched(fields: &[Field], filled: &Filled) -> bool {
    fields.iter().any(|field| match &field.kind {
        Kind::Group(inner) => is_touched(inner, filled),
        _ => !given(filled, &field.pointer).is_empty(),
    })
}

fn one(kind: &Kind, texts: &[String]) -> Said {
    if let Kind::Several(choices) = kind {
        return several(choices, texts);
    }
    let Some(given) = texts.first() else { return Ok(None) };
    match kind {
        Kind::Text(rules) => text(rules, given),
        Kind::Number(rules) => number(rules, given.trim()).map(Some),
        Kind::Flag => match given.as_str() {
            "true" => Ok(Some(Value::Bool(true))),
            "false" => Ok(Some(Value::Bool(false))),
            _ => Err("must be true or false".to_owned()),
        },
        Kind::Choice(choices) => chosen(choices, given).map(Some),
        Kind::Lines(rules) => lines(rules, given),
        Kind::Json(types) => json(types, given.trim()),
        Kind::Several(_) | Kind::Group(_) => Ok(None), // They are read in another way.
    }
}

fn text(rules: &Text, given: &str) -> Said {
    // Browsers send other ends of lines than people type.
    let given = given.replace("\r\n", "\n");
    let length = given.chars().count() as u64;
    match (rules.least, rules.most) {
        (Some(least), _) if length < least => Err(format!("must have at least {least} characters")),
        (_, Some(most)) if length > most => Err(format!("must have at most {most} characters")),
        _ => Ok(Some(Value::String(given))),
    }
}

fn number(rules: &Number, given: &str) -> Result<Value, String> {
    let whole =
        given.parse::<i64>().map(JsonNumber::from).or_else(|_| given.parse::<u64>().map(JsonNumber::from));
    let number = match whole {
        Ok(whole) => whole,
        Err(_) if rules.integer => return Err(format!("must be an integer, and is '{given}'")),
        Err(_) => {
            let float = given.parse::<f64>().ok().and_then(JsonNumber::from_f64);
            float.ok_or_else(|| format!("must be a number, and is '{given}'"))?
        }
    };
    let value = number.as_f64().unwrap_or_default();
    let beyond = |bound: Option<(f64, bool)>, is_beyond: fn(f64, f64) -> bool| {
        bound.filter(|(bound, itself)| is_beyond(value, *bound) || (!itself && value == *bound))
    };
    if let Some((least, itself)) = beyond(rules.least, |value, least| value < least) {
        return Err(format!("must be {} {least}", if itself { "at least" } else { "more than" }));
    }
    if let Some((most, itself)) = beyond(rules.most, |value, most| value > most) {
        return Err(format!("must be {} {most}", if itself { "at most" } else { "less than" }));
    }
    if let Some(step) = rules.step {
        let steps = value / step;
        if (steps - steps.round()).abs() > 1e-9 * steps.abs().max(1.0) {
            return Err(format!("must be a multiple of {step}"));
        }
    }
    Ok(Value::Number(number))
}

fn chosen(choices: &[Choice], given: &str) -> Result<Value, String> {
    let choice = choices.iter().find(|choice| choice.value == given);
    let value = choice.and_then(|choice| serde_json::from_str(&choice.value).ok());
    value.ok_or_else(|| "must be one of those that there are".to_owned())
}

fn several(choices: &[Choice], texts: &[String]) -> Said {
    let values: Vec<Value> = texts.iter().map(|text| chosen(choices, text)).collect::<Result<_, _>>()?;
    Ok((!values.is_empty()).then_some(Value::Array(values)))
}

fn lines(rules: &Lines, given: &str) -> Said {
    let lines: Vec<&str> = given.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let item = |(at, line): (usize, &&str)| match &rules.of {
        None => Ok(Value::from(*line)),
        Some(rules) => number(rules, line.trim()).map_err(|text| format!("line {} {text}", at + 1)),
    };
    let items: Vec<Value> = lines.iter().enumerate().map(item).collect::<Result<_, _>>()?;
    match (rules.least, rules.most, items.len() as u64) {
        (Some(least), _, count) if count < least => Err(format!("must have at least {least} lines")),
        (_, Some(most), count) if count > most => Err(format!("must have at most {most} lines")),
        _ => Ok(Some(Value::Array(items))),
    }
}

fn json(types: &[&'static str], given: &str) -> Said {
    if given.is_empty() {
        return Ok(None);
    }
    let allows = |name: &str| types.is_empty() || types.contains(&name);
    match crate::allowance::json::<Value>(given) {
        Ok(value) if type_of(&value).iter().any(|name| allows(name)) => Ok(Some(value)),
        Err(error) if error.status() != StatusCode::BAD_REQUEST => Err(error.to_string()),
        // Words that happen to be JSON of another kind.
        Ok(_) | Err(_) if allows("string") => Ok(Some(Value::from(given))),
        Ok(_) => Err(format!("must be {} as JSON", type_words(types))),
        Err(error) => Err(format!("must be {} as JSON: {error}", type_words(types))),
    }
}

fn type_of(value: &Value) -> &'static [&'static str] {
    match value {
        Value::Null => &["null"],
        Value::Bool(_) => &["boolean"],
        Value::Number(number) if number.is_f64() => &["number"],
        Value::Number(_) => &["integer", "number"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["array"],
        Value::Object(_) => &["object"],
    }
}
