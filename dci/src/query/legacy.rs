//! Filters and orders of the deprecated searches, which may ask for any field.

use bson::{Bson, DateTime, Document};
use disbatch_core::model::{TaskId, whole_number};
use serde_json::{Map, Value};

use super::{collection_filter, refuse_concealed};
use crate::error::HttpError;
use crate::legacy::integer;

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

pub fn id(text: &str) -> Result<TaskId, HttpError> {
    text.parse().map_err(|error| HttpError::bad_request(format!("Bad OID passed: {error}")))
}

fn typed_document(filter: Document) -> Result<Document, HttpError> {
    let field = |(key, value): (String, Bson)| {
        let value = match (key.as_str(), value) {
            ("queue", value) => typed(value, &|text| id(text).map(Bson::from), &Ok)?,
            ("_id", value) => {
                typed(value, &|text| Ok(id(text).map_or_else(|_| text.into(), Bson::from)), &Ok)?
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
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use serde_json::json;

    use super::*;

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    fn filter(value: Value) -> Result<Document, HttpError> {
        search_filter(value.as_object().unwrap())
    }

    #[test]
    fn text_becomes_an_id_and_milliseconds_a_time() {
        let id = ObjectId::parse_str(ID).unwrap();
        let at = DateTime::from_millis(1_700_000_000_000);
        let same = [
            (json!({"queue": ID}), doc! { "queue": id }),
            (json!({"queue": {"$in": [ID]}}), doc! { "queue": { "$in": [id] } }),
            (json!({"_id": {"$oid": ID}}), doc! { "_id": id }),
            (json!({"_id": ID}), doc! { "_id": id }),
            (json!({"_id": "x"}), doc! { "_id": "x" }),
            (json!({"ctime": 1_700_000_000_000_i64}), doc! { "ctime": at }),
            (
                json!({"$or": [{"mtime": {"$lt": 1_700_000_000_000_i64}}, {"queue": ID}]}),
                doc! { "$or": [{ "mtime": { "$lt": at } }, { "queue": id }] },
            ),
            (
                json!({"ctime": {"$exists": true}, "params.a": "b"}),
                doc! { "ctime": { "$exists": true }, "params.a": "b" },
            ),
        ];
        for (given, stored) in same {
            assert_eq!(filter(given).unwrap(), stored);
        }
        let error = filter(json!({"queue": "zzz"})).unwrap_err().to_string();
        assert_eq!(error, "Bad OID passed: 'zzz' is not an id: expected 24 hexadecimal digits");
        assert!(filter(json!({"$where": "1"})).is_err());
    }

    #[test]
    fn nobody_searches_for_what_is_for_plugins_only() {
        for secret in [
            json!({"secure_params": {"$exists": true}}),
            json!({"secure_params.data": {"$regex": "a"}}),
            json!({"status": 1, "$or": [{"a": 1}, {"$and": [{"secure_params.key": "k"}]}]}),
            json!({"$nor": [{"secure_params": null}]}),
        ] {
            let error = filter(secret.clone()).unwrap_err();
            assert_eq!(error.status(), 400, "{secret}");
            assert!(error.to_string().starts_with("'secure_params' is for plugins only"), "{error}");
        }
        assert!(sort(Some(&json!({"secure_params.key": 1}))).is_err());
        for other in [json!({"params.secure_params": 1}), json!({"params": {"secure_params": 1}})] {
            assert!(filter(other.clone()).is_ok(), "{other}");
        }
    }

    #[test]
    fn orders_are_fields_with_directions() {
        assert_eq!(sort(None).unwrap(), None);
        assert_eq!(sort(Some(&json!({"_id": -1}))).unwrap(), Some(doc! { "_id": -1_i64 }));
        for wrong in
            [json!([]), json!("x"), json!({"a": 2}), json!({"$a": 1}), json!({"": 1}), json!({"a": {}})]
        {
            assert!(sort(Some(&wrong)).is_err(), "{wrong}");
        }
    }
}
