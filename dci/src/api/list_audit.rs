//! `GET /audit`

use actix_web::HttpRequest;
use actix_web::web::Data;
use serde_json::Value;

use crate::api::Answer;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::openapi::{AuditEntry, BulkLimit, ErrorBody, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, bulk, ui};

/// So many entries unless told otherwise.
const DEFAULT_LIMIT: i64 = 100;

/// Who did what to many tasks at once, the latest first. Browsers get a page, on which they can look for entries.
///
/// # Errors
/// `.limit` is wrong, or the database cannot be reached.
#[utoipa::path(
    get, path = "/audit", tag = "bulk", operation_id = "listAudit",
    params(BulkLimit),
    responses(
        (
            status = 200, content((Vec<AuditEntry> = "application/json"), (String = "text/html")),
            description = "The entries; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "`.limit` is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, params: Result<Params, HttpError>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::audit::render(&state, &params.unwrap_or_default()).await));
    }
    let entries = state.store.list_audit(bulk::limit(&params?, DEFAULT_LIMIT)?).await?;
    let view = |mut entry: bson::Document| {
        entry.remove("_id");
        bulk::plain_ids(Value::Object(json::from_document(&entry, Dates::Text)))
    };
    Ok(json::ok(&entries.into_iter().map(view).collect()))
}
