//! `GET /locks/:name`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{ErrorBody, LockDetails, OfRead};
use crate::state::State;
use crate::{accept, gates, json, ui};

/// A lock: who holds it, and the first 100 of those who wait for it, in the order in which they get it. A task of a queue that
/// the client may not see has no id, and says `hidden`.
#[utoipa::path(
    get, path = "/locks/{name}", tag = "locks", operation_id = "getLock",
    params(("name" = String, Path, description = "Its name.", example = "db")),
    responses(
        (
            status = 200, content((LockDetails = "application/json"), (String = "text/html")),
            description = "The lock; a page if `Accept` asks for HTML.",
        ),
        (
            status = 404, content((ErrorBody = "application/json"), (String = "text/html")),
            description = "Nobody holds it or waits for it whose tasks the client may see.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, name: Path<String>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::locks::one(&state, &who, &name).await));
    }
    let sight = gates::sight(&state, &who).await?;
    Ok(json::ok(&gates::of_details(&gates::lock(&state, &sight, &name).await?)))
}
