//! `GET /locks`

use actix_web::HttpRequest;
use actix_web::web::Data;

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{ErrorBody, Lock, LockSearch, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, gates, json, ui};

/// The locks that tasks hold or wait for, in the order of their names, with the first of those who hold them. Who may see
/// some queues only sees locks of their tasks, and of other tasks that there are some.
#[utoipa::path(
    get, path = "/locks", tag = "locks", operation_id = "listLocks",
    params(LockSearch),
    responses(
        (
            status = 200, content((Vec<Lock> = "application/json"), (String = "text/html")),
            description = "The locks; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::locks::list(&state, &who, &params).await));
    }
    let sight = gates::sight(&state, &who).await?;
    let locks = gates::locks(&state, &sight, &gates::filter(&params)?).await?;
    Ok(json::ok(&locks.iter().map(gates::of_row).collect()))
}
