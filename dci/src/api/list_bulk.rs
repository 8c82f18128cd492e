//! `GET /bulk`

use actix_web::HttpRequest;
use actix_web::web::Data;

use crate::api::Answer;
use crate::openapi::{BulkJob, BulkLimit, ErrorBody, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, bulk, json, ui};

/// So many jobs unless told otherwise.
pub const DEFAULT_LIMIT: i64 = 20;

/// The bulk jobs, the latest first. A filter by ids has their number in place of the ids.
#[utoipa::path(
    get, path = "/bulk", tag = "bulk", operation_id = "listBulkJobs",
    params(BulkLimit),
    responses(
        (
            status = 200, content((Vec<BulkJob> = "application/json"), (String = "text/html")),
            description = "The jobs; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "`.limit` is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::bulk::render(&state, &params).await));
    }
    let jobs = state.store.list_bulk(bulk::limit(&params, DEFAULT_LIMIT)?).await?;
    Ok(json::ok(&jobs.iter().map(|job| bulk::view(job, false)).collect()))
}
