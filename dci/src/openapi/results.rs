//! What writes answer: the results of the Perl driver under its class names. These types only describe.

use serde_json::Value;
use utoipa::ToSchema;

use super::schema::Oid;

/// The result of changing one document.
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::UpdateResult": {
    "matched_count": 1, "modified_count": 1, "upserted_id": null,
    "write_concern_errors": [], "write_errors": [],
}}))]
pub struct UpdateResult {
    #[schema(rename = "MongoDB::UpdateResult")]
    result: Update,
}

#[derive(ToSchema)]
pub struct Update {
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
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::DeleteResult": {
    "deleted_count": 1, "write_concern_errors": [], "write_errors": [],
}}))]
pub struct DeleteResult {
    #[schema(rename = "MongoDB::DeleteResult")]
    result: Delete,
}

#[derive(ToSchema)]
pub struct Delete {
    deleted_count: u64,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of creating a queue.
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::InsertOneResult": {
    "inserted_id": {"$oid": "6b0003bb686c8275d70dc2f1"}, "write_concern_errors": [], "write_errors": [],
}, "id": {"$oid": "6b0003bb686c8275d70dc2f1"}}))]
pub struct CreatedQueue {
    #[schema(rename = "MongoDB::InsertOneResult")]
    result: InsertOne,
    /// The queue's id.
    id: Oid,
}

#[derive(ToSchema)]
pub struct InsertOne {
    inserted_id: Oid,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

/// The result of creating tasks.
#[derive(ToSchema)]
#[schema(example = json!({"MongoDB::InsertManyResult": {
    "acknowledged": 1, "inserted": [{"_id": {"$oid": "6b0003bb686c8275d8013333"}, "index": 0}],
    "write_concern_errors": [], "write_errors": [],
}}))]
pub struct InsertManyResult {
    #[schema(rename = "MongoDB::InsertManyResult")]
    result: InsertMany,
}

#[derive(ToSchema)]
pub struct InsertMany {
    acknowledged: u64,
    /// The ids in the order of the tasks.
    inserted: Vec<Inserted>,
    write_concern_errors: Vec<Value>,
    write_errors: Vec<Value>,
}

#[derive(ToSchema)]
pub struct Inserted {
    #[schema(rename = "_id")]
    oid: Oid,
    /// Counted from 0.
    index: u64,
}
