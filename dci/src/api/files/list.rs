//! `GET /files`

use actix_web::HttpRequest;
use actix_web::web::Data;

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{ErrorBody, FileSetSearch, FileSetSummary, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, files, json, ui};

/// The file sets in the order of their names, each as its newest version. Browsers get a page. Only those of tenants that whoever
/// asks may see; those of no tenant are for viewers of everything.
#[utoipa::path(
    get, path = "/files", tag = "files", operation_id = "listFileSets",
    params(FileSetSearch),
    responses(
        (
            status = 200, content((Vec<FileSetSummary> = "application/json"), (String = "text/html")),
            description = "The sets; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::files::render(&state, &who, &params).await));
    }
    let sets = state.store.filesets(&files::query(&who, &params)?).await?;
    Ok(json::ok(&sets.iter().map(files::of_summary).collect()))
}
