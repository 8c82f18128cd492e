//! `GET /audit`

use actix_web::web::Data;
use serde_json::Value;

use crate::api::Answer;
use crate::bulk;
use crate::json::{self, Dates};
use crate::openapi::{AuditEntry, BulkLimit, ErrorBody, OfSearch};
use crate::params::Params;
use crate::state::State;

/// So many entries unless told otherwise.
const DEFAULT_LIMIT: i64 = 100;

/// Who did what to many tasks at once, the latest first.
///
/// # Errors
/// `.limit` is wrong, or the database cannot be reached.
#[utoipa::path(
    get, path = "/audit", tag = "bulk", operation_id = "listAudit",
    params(BulkLimit),
    responses(
        (status = 200, description = "The entries.", body = Vec<AuditEntry>),
        (status = 400, description = "`.limit` is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, params: Params) -> Answer {
    let entries = state.store.list_audit(bulk::limit(&params, DEFAULT_LIMIT)?).await?;
    let view = |mut entry: bson::Document| {
        entry.remove("_id");
        bulk::plain_ids(Value::Object(json::from_document(&entry, Dates::Text)))
    };
    Ok(json::ok(&entries.into_iter().map(view).collect()))
}
