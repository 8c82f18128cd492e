//! What clients of Perl Disbatch rely on: results of writes under the Perl driver's class names, and Perl's
//! notions of truth and of numbers.

use bson::oid::ObjectId;
use disbatch_core::model::TaskId;
use disbatch_core::node::Updated;
use disbatch_core::store::WriteFailure;
use disbatch_wire::Oid;
pub use disbatch_wire::liberal::{integer, is_true};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The result of changing one document.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"MongoDB::UpdateResult": {
    "matched_count": 1, "modified_count": 1, "upserted_id": null,
    "write_concern_errors": [], "write_errors": [],
}}))]
pub struct UpdateResult {
    #[serde(rename = "MongoDB::UpdateResult")]
    result: Update,
}

#[derive(Default, Serialize, ToSchema)]
struct Update {
    /// 1 if there is such a thing.
    matched_count: u64,
    /// 1 if it was not so already.
    modified_count: u64,
    /// Always null.
    upserted_id: Value,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of deleting.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"MongoDB::DeleteResult": {
    "deleted_count": 1, "write_concern_errors": [], "write_errors": [],
}}))]
pub struct DeleteResult {
    #[serde(rename = "MongoDB::DeleteResult")]
    result: Delete,
}

#[derive(Default, Serialize, ToSchema)]
struct Delete {
    deleted_count: u64,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of creating a queue.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"MongoDB::InsertOneResult": {
    "inserted_id": {"$oid": "6b0003bb686c8275d70dc2f1"}, "write_concern_errors": [], "write_errors": [],
}, "id": {"$oid": "6b0003bb686c8275d70dc2f1"}}))]
pub struct CreatedQueue {
    #[serde(rename = "MongoDB::InsertOneResult")]
    result: InsertOne,
    /// The queue's id.
    id: Oid,
}

#[derive(Default, Serialize, ToSchema)]
struct InsertOne {
    inserted_id: Oid,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of creating tasks.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({"MongoDB::InsertManyResult": {
    "acknowledged": 1, "inserted": [{"_id": {"$oid": "6b0003bb686c8275d8013333"}, "index": 0}],
    "write_concern_errors": [], "write_errors": [],
}}))]
pub struct InsertManyResult {
    #[serde(rename = "MongoDB::InsertManyResult")]
    result: InsertMany,
}

#[derive(Default, Serialize, ToSchema)]
struct InsertMany {
    acknowledged: u64,
    /// The ids in the order of the tasks.
    inserted: Vec<Inserted>,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

#[derive(Serialize, ToSchema)]
struct Inserted {
    #[serde(rename = "_id")]
    oid: Oid,
    /// Counted from 0.
    index: u64,
}

pub fn update_result(updated: Updated) -> Value {
    let (matched_count, modified_count) = (updated.matched, updated.modified);
    json!(UpdateResult { result: Update { matched_count, modified_count, ..Update::default() } })
}

pub fn delete_result(deleted_count: u64) -> Value {
    json!(DeleteResult { result: Delete { deleted_count, ..Delete::default() } })
}

pub fn created_queue(id: ObjectId) -> Value {
    json!(CreatedQueue { result: inserted_one(id), id: oid(id) })
}

pub fn insert_one_result(id: ObjectId) -> Value {
    json!({ "MongoDB::InsertOneResult": inserted_one(id) })
}

pub fn insert_many_result(ids: &[TaskId]) -> Value {
    let inserted = (0..).zip(ids).map(|(index, id)| Inserted { oid: oid(id.0), index }).collect();
    json!(InsertManyResult { result: InsertMany { acknowledged: 1, inserted, ..InsertMany::default() } })
}

fn inserted_one(id: ObjectId) -> InsertOne {
    InsertOne { inserted_id: oid(id), ..InsertOne::default() }
}

fn oid(id: ObjectId) -> Oid {
    Oid { oid: id.to_hex() }
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

/// A name that is taken.
pub fn duplicate(failure: &WriteFailure, result: &Value) -> Value {
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
