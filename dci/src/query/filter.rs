//! Filters from outside. Only operators that compare are let through: nothing that runs code on the server
//! or looks into other collections.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::TaskId;
use serde_json::{Map, Value};

use super::refuse_concealed;
use crate::error::HttpError;
use crate::json::{to_bson, to_document};
use crate::values::tags::{self, NAMES};

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
    let mut filter = tags::filter(given)?.unwrap_or_default();
    for (name, value) in fields.iter().filter(|(name, _)| !NAMES.contains(name)) {
        refuse_concealed(name)?;
        let (key, value) = match *name {
            "id" => ("_id", id(value)?),
            "queue" => ("queue", id(value)?),
            // No task has another value, and its index has no others.
            "schedule" => ("schedule", id(value)?),
            "status" => ("status", any_of(value, status)?),
            other => (other, any_of(value, to_bson)?),
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

/// A status in a query string or a form is text.
fn status(value: &Value) -> Bson {
    let Value::String(text) = value else { return to_bson(value) };
    let integer = text.parse::<i64>().ok().map(|number| to_bson(&Value::from(number)));
    integer.or_else(|| text.parse::<f64>().ok().map(Bson::Double)).unwrap_or_else(|| to_bson(value))
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

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_task(name: &str, value: Value) -> Result<Document, HttpError> {
        task_filter(&[(name, &value)])
    }

    fn of_collection(filter: Value) -> Result<Document, HttpError> {
        collection_filter(filter.as_object().unwrap())
    }

    #[test]
    fn values_get_the_type_of_their_field() {
        let id = ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap();
        assert_eq!(of_task("id", json!(id.to_hex())).unwrap(), doc! { "_id": id });
        assert_eq!(of_task("queue", json!(id.to_hex())).unwrap(), doc! { "queue": id });
        assert_eq!(of_task("status", json!("-2")).unwrap(), doc! { "status": -2_i32 });
        assert_eq!(of_task("status", json!("-2.0")).unwrap(), doc! { "status": -2.0 });
        assert_eq!(of_task("status", json!("abc")).unwrap(), doc! { "status": "abc" });
        assert_eq!(
            of_task("status", json!(["-2", 1])).unwrap(),
            doc! { "status": { "$in": [-2_i32, 1_i32] } }
        );
        let tags = doc! { "tags": { "$all": ["a", "b"] } };
        assert_eq!(of_task("tags", json!("a,b")).unwrap(), tags, "all of them");
        assert_eq!(of_task("node", json!(null)).unwrap(), doc! { "node": null });
        assert_eq!(of_task("node", json!("7")).unwrap(), doc! { "node": "7" });
        assert_eq!(of_task("status", json!({"$lt": 0})).unwrap(), doc! { "status": { "$lt": 0_i32 } });
    }

    #[test]
    fn ids_must_be_ids() {
        for wrong in [json!("xyz"), json!(["6b0003bb686c8275d70dc2f1"]), json!({"$oid": "x"}), json!(null)] {
            assert_eq!(of_task("queue", wrong).unwrap_err().status(), 400);
        }
    }

    #[test]
    fn only_comparing_operators_pass() {
        for wrong in [
            json!({"$where": "1"}),
            json!({"$not": {"$expr": 1}}),
            json!([{"$where": "1"}]),
            json!({"$elemMatch": {"a": {"$function": {}}}}),
            json!({"$in": [{"a": {"$accumulator": {}}}]}),
            json!({"a": {"$where": 1}}),
        ] {
            let error = of_task("node", wrong.clone()).unwrap_err();
            assert!(error.to_string().ends_with("is not allowed"), "{wrong}: {error}");
        }
    }

    #[test]
    fn collections_may_be_searched_with_combinations() {
        let filter = json!({"$or": [{"a": 1}, {"b": {"$in": ["x"]}}], "c.d": null});
        assert_eq!(
            of_collection(filter).unwrap(),
            doc! { "$or": [{ "a": 1_i32 }, { "b": { "$in": ["x"] } }], "c.d": null }
        );
        let error = of_collection(json!({"$bad": 1})).unwrap_err();
        assert!(
            error.to_string().starts_with("MongoDB::DatabaseError: unknown top level operator: $bad. If")
        );
        for wrong in
            [json!({"$or": 1}), json!({"$or": [1]}), json!({"$where": "1"}), json!({"$and": [{"$expr": {}}]})]
        {
            assert!(of_collection(wrong).is_err());
        }
        let error = of_collection(json!({"$accumulator": {}})).unwrap_err();
        assert_eq!(error.to_string(), "operator '$accumulator' is not allowed");
    }

    #[test]
    fn code_is_named_before_anything_else_that_is_wrong() {
        let check = |filter: Value| check_forbidden(filter.as_object().unwrap());
        for (filter, operator) in [
            (json!({"$bad": 1, "z": {"$where": "1"}}), "$where"),
            (
                json!({"a": [[{"b": {"$expr": {"$function": {"body": "f", "args": [], "lang": "js"}}}}]]}),
                "$expr",
            ),
            (json!({"a": {"$map": {"in": {"$function": {}}}}}), "$function"),
        ] {
            let error = check(filter).unwrap_err();
            assert_eq!(
                (error.status().as_u16(), error.message()),
                (400, &*format!("operator '{operator}' is not allowed"))
            );
        }
        assert!(check(json!({"$bad": 1, "where": "$where", "a": {"$in": ["$function"]}})).is_ok());
    }
}
