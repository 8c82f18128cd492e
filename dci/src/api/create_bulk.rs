//! `POST /bulk`

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, then};
use crate::openapi::{ErrorBody, NewBulk, NewBulkAnswer, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{accept, bulk, changes, json, ui};

/// Does one thing to many tasks, in the background: cancel, retry, archive or delete. Tasks that come later
/// are left alone. With the option `.preview`, only says how many tasks match; `null` if counting takes too long.
#[utoipa::path(
    post, path = "/bulk", tag = "bulk", operation_id = "createBulkJob",
    request_body(content(
        (NewBulk = "application/json"),
        (NewBulk = "application/x-www-form-urlencoded"),
    )),
    responses(
        (
            status = 200, content((NewBulkAnswer = "application/json"), (String = "text/html")),
            description = "With `.preview`: how many tasks match; a page if `Accept` asks for HTML.",
        ),
        (status = 202, description = "The job's id. Its progress is at `GET /bulk/{id}`.", body = NewBulkAnswer),
        (status = 303, description = "To the job's page, if `Accept` asks for HTML."),
        (
            status = 400, content((ErrorBody = "application/json"), (String = "text/html")),
            description = "A parameter is wrong, or the filter is for everything.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    let html = accept::wants_html(&request);
    let wanted = match bulk::request(&state, &params, &request).await {
        Ok(wanted) => wanted,
        Err(error) if html => return Ok(ui::page(ui::bulk::refused(&state, &who, &params, &error).await)),
        Err(error) => return Err(error),
    };
    if params.is_on("preview") {
        let count = state.store.count_bulk(wanted.action, &wanted.filter).await?;
        if html {
            return Ok(ui::page(ui::bulk::confirm(&state, &params, &wanted, count).await));
        }
        return Ok(json::ok(&json!({ "count": count })));
    }
    let id = changes::create_bulk(&state, wanted).await?.to_hex();
    let place = format!("/bulk/{id}");
    if html {
        return Ok(then::see(&place));
    }
    Ok(json::made(StatusCode::ACCEPTED, &place, &json!({ "id": id })))
}
