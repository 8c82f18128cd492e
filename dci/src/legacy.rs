//! What clients of Perl Disbatch rely on: results of writes under the Perl driver's class names, and Perl's
//! notions of truth and of numbers.

use bson::oid::ObjectId;
use disbatch_core::model::TaskId;
use disbatch_core::node::Updated;
use disbatch_core::store::WriteFailure;
pub use disbatch_wire::liberal::{integer, is_true};
use serde_json::{Value, json};

use crate::json::oid;

pub fn update_result(updated: Updated) -> Value {
    json!({ "MongoDB::UpdateResult": {
        "matched_count": updated.matched,
        "modified_count": updated.modified,
        "upserted_id": null,
        "write_concern_errors": [],
        "write_errors": [],
    } })
}

pub fn delete_result(deleted: u64) -> Value {
    json!({ "MongoDB::DeleteResult": {
        "deleted_count": deleted,
        "write_concern_errors": [],
        "write_errors": [],
    } })
}

pub fn insert_one_result(id: ObjectId) -> Value {
    json!({ "MongoDB::InsertOneResult": {
        "inserted_id": oid(id),
        "write_concern_errors": [],
        "write_errors": [],
    } })
}

pub fn insert_many_result(ids: &[TaskId]) -> Value {
    let inserted: Vec<Value> =
        ids.iter().enumerate().map(|(index, id)| json!({ "_id": oid(id.0), "index": index })).collect();
    json!({ "MongoDB::InsertManyResult": {
        "acknowledged": 1,
        "inserted": inserted,
        "write_concern_errors": [],
        "write_errors": [],
    } })
}

/// A name that is taken, when changing a document.
pub fn duplicate_on_update(failure: &WriteFailure) -> Value {
    duplicate(failure, &Value::Null)
}

/// A name that is taken, when inserting a queue.
pub fn duplicate_on_insert(failure: &WriteFailure, id: ObjectId, name: &Value, plugin: &Value) -> Value {
    let mut result = insert_one_result(id);
    result["MongoDB::InsertOneResult"]["write_errors"] = json!([{
        "code": failure.code,
        "errmsg": failure.message,
        "index": 0,
        "keyPattern": { "name": 1 },
        "keyValue": { "name": name },
        "op": { "name": name, "plugin": plugin },
    }]);
    duplicate(failure, &result)
}

fn duplicate(failure: &WriteFailure, result: &Value) -> Value {
    json!({
        "MongoDB::DuplicateKeyError": {
            "code": failure.code,
            "message": failure.message,
            "previous_exception": "",
            "result": result,
        },
        "error": format!("MongoDB::DuplicateKeyError: {}", failure.message),
    })
}

pub fn with(mut result: Value, key: &str, value: impl Into<Value>) -> Value {
    result[key] = value.into();
    result
}

/// Whether Perl matches `value` with `/^\d+$/`: integers, digits as text (a line break may follow), booleans.
pub fn is_non_negative_integer(value: &Value) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::Number(number) => {
            number.is_u64() || number.as_f64().is_some_and(|n| (0.0..1e15).contains(&n) && n.fract() == 0.0)
        }
        Value::String(text) => {
            let digits = text.strip_suffix('\n').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_is_perls() {
        for yes in [json!(1), json!("a"), json!("00"), json!(true), json!([]), json!({}), json!(-0.5)] {
            assert!(is_true(Some(&yes)), "{yes}");
        }
        for no in [json!(null), json!(""), json!("0"), json!(0), json!(0.0), json!(false)] {
            assert!(!is_true(Some(&no)), "{no}");
        }
        assert!(!is_true(None));
    }

    #[test]
    fn non_negative_integers_are_what_perl_matches() {
        for yes in [json!(0), json!(99_999_999_999_u64), json!("8"), json!("3\n"), json!(true), json!(2.0)] {
            assert!(is_non_negative_integer(&yes), "{yes}");
        }
        let long = json!("99999999999999999999999");
        assert!(is_non_negative_integer(&long));
        for no in [json!(-1), json!(1.5), json!(""), json!("abc"), json!([1]), json!(null), json!("1\n\n")] {
            assert!(!is_non_negative_integer(&no), "{no}");
        }
    }
}
