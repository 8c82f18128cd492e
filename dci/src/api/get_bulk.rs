//! `GET /bulk/:id`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};

use crate::api::Answer;
use crate::openapi::{BulkJob, ErrorBody, OfRead};
use crate::state::State;
use crate::{accept, bulk, json, ui};

/// One bulk job and how far it is: JSON, or a page.
#[utoipa::path(
    get, path = "/bulk/{id}", tag = "bulk", operation_id = "getBulkJob",
    params(("id" = String, Path, description = "Its id.")),
    responses(
        (
            status = 200, content((BulkJob = "application/json"), (String = "text/html")),
            description = "The job; a page if `Accept` asks for HTML.",
        ),
        (
            status = 404, content((ErrorBody = "application/json"), (String = "text/html")),
            description = "There is no such job.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, id: Path<String>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::bulk::job::render(&state, &id).await));
    }
    let job = bulk::find(&state, &id).await?;
    Ok(json::ok(&bulk::view(&job, true)))
}
