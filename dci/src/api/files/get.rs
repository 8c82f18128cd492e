//! `GET /files/:name`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{ErrorBody, FileSearch, FileSetPage, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, files, json, ui};

/// A version of a file set, the newest unless `.version` says another, with its files page by page in the order of the bytes of
/// their paths, and the versions that there are. Browsers get a page.
#[utoipa::path(
    get, path = "/files/{name}", tag = "files", operation_id = "getFileSet",
    params(("name" = String, Path, description = "The name of the set.", example = "data"), FileSearch),
    responses(
        (
            status = 200, content((FileSetPage = "application/json"), (String = "text/html")),
            description = "The version with files; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such version.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    name: Path<String>,
    params: Params,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::files::one::render(&state, &who, &name, &params).await));
    }
    let page = files::page(&state, &who, &name, &params).await?;
    Ok(json::ok(&files::of_page(&page)))
}
