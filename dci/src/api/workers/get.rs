//! `GET /workers/:name`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::{Answer, workers};
use crate::openapi::{self, ErrorBody, OfRead};
use crate::state::State;
use crate::{accept, json, ui};

/// One worker. Browsers get a page. Values of headers and variables are for administrators alone.
#[utoipa::path(
    get, path = "/workers/{name}", tag = "workers", operation_id = "getWorker",
    params(("name" = String, Path, description = "The plugin's name.", example = "My::Report")),
    responses(
        (
            status = 200, content((openapi::Worker = "application/json"), (String = "text/html")),
            description = "The worker; a page if `Accept` asks for HTML.",
        ),
        (status = 404, description = "There is no such worker.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, name: Path<String>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::workers::one::render(&state, &who, &name).await));
    }
    Ok(json::ok(&workers::view(&workers::find(&state, &name).await?, &who)))
}
