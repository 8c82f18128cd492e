//! `GET /workers`

use actix_web::HttpRequest;
use actix_web::web::Data;

use crate::access::Who;
use crate::api::{Answer, workers};
use crate::openapi::{self, OfRead};
use crate::state::State;
use crate::{accept, json, ui};

/// The plugins that the database defines, by name. Browsers get a page. Values of headers and variables are for administrators
/// alone.
#[utoipa::path(
    get, path = "/workers", tag = "workers", operation_id = "listWorkers",
    responses(
        (
            status = 200, content((Vec<openapi::Worker> = "application/json"), (String = "text/html")),
            description = "The workers; a page if `Accept` asks for HTML.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::workers::render(&state, &who).await));
    }
    let all = state.store.workers().await?;
    Ok(json::ok(&all.iter().map(|worker| workers::view(worker, &who)).collect()))
}
