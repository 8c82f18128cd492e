//! Filters and orders from outside. Only operators that compare are let through: nothing that runs code on the server
//! or looks into other collections. The deprecated searches may ask for any field.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{TaskId, whole_number};
use serde_json::{Map, Value};

use super::refuse_concealed;
use crate::error::HttpError;
use crate::json::{to_bson, to_document};
use crate::legacy::integer;
use crate::values::{TAG_NAMES, tag_filter};

/// Operators on a field's value.
const COMPARING: [&str; 16] = [
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$exists",
    "$not",
    "$type",
    "$all",
    "$size",
    "$elemMatch",
    "$regex",
    "$options",
];

/// Operators on filters.
const COMBINING: [&str; 3] = ["$and", "$or", "$nor"];

/// MongoDB's own operators that are known and not wanted. `$where`, `$function` and `$accumulator` would run JavaScript on
/// the server, the latter two within `$expr`.
const FORBIDDEN: [&str; 9] = [
    "$where",
    "$expr",
    "$function",
    "$accumulator",
    "$jsonSchema",
    "$text",
    "$comment",
    "$sampleRate",
    "$alwaysTrue",
];

/// The filter of a search over tasks: field and value, where an array means any of its values, save of tags.
pub fn task_filter(fields: &[(&str, &Value)]) -> Result<Document, HttpError> {
    let given = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
    let [all, any] = TAG_NAMES.map(given);
    let mut filter = tag_filter(all, any)?.unwrap_or_default();
    for (name, value) in fields.iter().filter(|(name, _)| !TAG_NAMES.contains(name)) {
        refuse_concealed(name)?;
        let (key, value) = match *name {
            "id" => ("_id", id(value)?),
            "queue" => ("queue", id(value)?),
            // No task has another value, and its index has no others.
            "schedule" => ("schedule", id(value)?),
            "node" => ("node", any_of(value, node)?),
            other => (other, any_of(value, number_or_text)?),
        };
        filter.insert(key, value);
    }
    Ok(filter)
}

/// The filter of a search over another collection.
pub fn collection_filter(filter: &Map<String, Value>) -> Result<Document, HttpError> {
    let mut checked = Document::new();
    for (key, value) in filter {
        check_key(key)?;
        let value = match value {
            Value::Array(parts) if COMBINING.contains(&key.as_str()) => {
                let parts = parts.iter().map(|part| match part {
                    Value::Object(part) => collection_filter(part).map(Bson::Document),
                    _ => Err(HttpError::bad_request(format!("'{key}' must be an array of objects"))),
                });
                Bson::Array(parts.collect::<Result<_, _>>()?)
            }
            _ if COMBINING.contains(&key.as_str()) => {
                return Err(HttpError::bad_request(format!("'{key}' must be an array of objects")));
            }
            _ if FORBIDDEN.contains(&key.as_str()) => return Err(not_allowed(key)),
            _ if key.starts_with('$') => {
                // The server's own words, which clients of Perl Disbatch see.
                return Err(HttpError::bad_request(format!(
                    "MongoDB::DatabaseError: unknown top level operator: {key}. If you have a field name \
                     that starts with a '$' symbol, consider using $getField or $setField."
                )));
            }
            value => checked_value(value)?,
        };
        checked.insert(key.clone(), value);
    }
    Ok(checked)
}

/// Refuses a filter that has an operator anywhere in it that is known and not wanted, whatever else is wrong with it.
pub fn check_forbidden(filter: &Map<String, Value>) -> Result<(), HttpError> {
    let within = |(key, value): (&String, &Value)| {
        if FORBIDDEN.contains(&key.as_str()) { Err(not_allowed(key)) } else { check_forbidden_value(value) }
    };
    filter.iter().try_for_each(within)
}

fn check_forbidden_value(value: &Value) -> Result<(), HttpError> {
    match value {
        Value::Object(map) => check_forbidden(map),
        Value::Array(items) => items.iter().try_for_each(check_forbidden_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn id(value: &Value) -> Result<Bson, HttpError> {
    let Value::String(text) = value else {
        return Err(HttpError::bad_request(format!("{value} is not an id: expected 24 hexadecimal digits")));
    };
    text.parse::<TaskId>().map(Bson::from).map_err(|error| HttpError::bad_request(error.to_string()))
}

fn any_of(value: &Value, convert: impl Fn(&Value) -> Bson) -> Result<Bson, HttpError> {
    match value {
        Value::Array(values) => {
            for value in values {
                checked_value(value)?;
            }
            Ok(Bson::from(doc! { "$in": values.iter().map(convert).collect::<Vec<_>>() }))
        }
        Value::Object(_) => checked_value(value),
        simple => Ok(convert(simple)),
    }
}

/// What looks like a number is one, as for Perl: all that a query string or a form has is text.
fn number_or_text(value: &Value) -> Bson {
    let Value::String(text) = value else { return to_bson(value) };
    let number = text.trim();
    let integer = number.parse::<i64>().ok().map(|number| to_bson(&Value::from(number)));
    integer.or_else(|| number.parse::<f64>().ok().map(Bson::Double)).unwrap_or_else(|| to_bson(value))
}

/// Names of nodes are text, also those that look like numbers, as those of containers do at times. -1 is what tasks of old have in
/// place of one.
fn node(value: &Value) -> Bson {
    if value.as_str() == Some("-1") { Bson::Int32(-1) } else { to_bson(value) }
}

fn checked_value(value: &Value) -> Result<Bson, HttpError> {
    let Value::Object(map) = value else {
        return match value {
            Value::Array(items) => items.iter().map(checked_value).collect::<Result<_, _>>().map(Bson::Array),
            simple => Ok(to_bson(simple)),
        };
    };
    if let Some(id) = extended_id(map) {
        return Ok(Bson::ObjectId(id));
    }
    for (key, item) in map {
        check_key(key)?;
        if key.starts_with('$') && !COMPARING.contains(&key.as_str()) {
            return Err(not_allowed(key));
        }
        checked_value(item)?;
    }
    let operators = map.keys().filter(|key| key.starts_with('$')).count();
    if operators == 0 {
        return Ok(Bson::Document(to_document(map)));
    }
    map.iter()
        .map(|(key, item)| Ok((key.clone(), checked_value(item)?)))
        .collect::<Result<_, _>>()
        .map(Bson::Document)
}

/// A document cannot hold such a key.
fn check_key(key: &str) -> Result<(), HttpError> {
    if key.contains('\0') {
        Err(HttpError::bad_request("a key must not have a null character"))
    } else {
        Ok(())
    }
}

/// `{"$oid": ".."}`, as ids are written in answers.
fn extended_id(map: &Map<String, Value>) -> Option<ObjectId> {
    let text = map.get("$oid").filter(|_| map.len() == 1)?.as_str()?;
    ObjectId::parse_str(text).ok()
}

fn not_allowed(operator: &str) -> HttpError {
    HttpError::bad_request(format!("operator '{operator}' is not allowed"))
}

/// The filter of a search over tasks in which text stands for an id, and milliseconds for a time, where the
/// field has one.
pub fn search_filter(filter: &Map<String, Value>) -> Result<Document, HttpError> {
    check_concealed(filter)?;
    typed_document(collection_filter(filter)?)
}

/// Refuses a filter that looks for what nobody but the plugin may see, also where filters are combined.
pub fn check_concealed(filter: &Map<String, Value>) -> Result<(), HttpError> {
    for (key, value) in filter {
        refuse_concealed(key)?;
        if key.starts_with('$')
            && let Value::Array(parts) = value
        {
            parts.iter().filter_map(Value::as_object).try_for_each(check_concealed)?;
        }
    }
    Ok(())
}

/// An order: an object of fields and 1 or -1.
pub fn sort(value: Option<&Value>) -> Result<Option<Document>, HttpError> {
    let wrong = || HttpError::bad_request("'sort' must be an object of fields and 1 or -1");
    let fields = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(wrong()),
    };
    let field = |(name, direction): (&String, &Value)| {
        refuse_concealed(name)?;
        let direction =
            integer(direction).filter(|direction| matches!(direction, 1 | -1)).ok_or_else(wrong)?;
        let named = !name.is_empty() && !name.split('.').any(|part| part.is_empty() || part.starts_with('$'));
        if named && !name.contains('\0') { Ok((name.clone(), Bson::Int64(direction))) } else { Err(wrong()) }
    };
    fields.iter().map(field).collect::<Result<_, _>>().map(Some)
}

fn task_id(text: &str) -> Result<TaskId, HttpError> {
    text.parse().map_err(|error| HttpError::bad_request(format!("Bad OID passed: {error}")))
}

fn typed_document(filter: Document) -> Result<Document, HttpError> {
    let field = |(key, value): (String, Bson)| {
        let value = match (key.as_str(), value) {
            ("queue", value) => typed(value, &|text| task_id(text).map(Bson::from), &Ok)?,
            ("_id", value) => {
                typed(value, &|text| Ok(task_id(text).map_or_else(|_| text.into(), Bson::from)), &Ok)?
            }
            ("ctime" | "mtime", value) => typed(value, &|text| Ok(text.into()), &|value| Ok(time(value)))?,
            (combination, Bson::Array(parts)) if combination.starts_with('$') => {
                let part = |part| match part {
                    Bson::Document(part) => typed_document(part).map(Bson::Document),
                    other => Ok(other),
                };
                Bson::Array(parts.into_iter().map(part).collect::<Result<_, _>>()?)
            }
            (_, value) => value,
        };
        Ok((key, value))
    };
    filter.into_iter().map(field).collect()
}

/// `value` and all that operators in it compare with, as `text` and `other` have it.
fn typed(
    value: Bson,
    text: &dyn Fn(&str) -> Result<Bson, HttpError>,
    other: &dyn Fn(Bson) -> Result<Bson, HttpError>,
) -> Result<Bson, HttpError> {
    match value {
        Bson::String(value) => text(&value),
        Bson::Array(values) => values
            .into_iter()
            .map(|value| typed(value, text, other))
            .collect::<Result<_, _>>()
            .map(Bson::Array),
        Bson::Document(operators) => {
            let each = |(name, value): (String, Bson)| {
                let compares =
                    !matches!(name.as_str(), "$exists" | "$type" | "$size" | "$regex" | "$options");
                Ok((name, if compares { typed(value, text, other)? } else { value }))
            };
            operators.into_iter().map(each).collect::<Result<_, _>>().map(Bson::Document)
        }
        value => other(value),
    }
}

fn time(value: Bson) -> Bson {
    whole_number(&value).map_or(value, |millis| DateTime::from_millis(millis).into())
}

#[cfg(test)]
mod tests;
