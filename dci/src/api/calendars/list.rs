//! `GET /calendars`

use actix_web::HttpRequest;
use actix_web::web::Data;

use crate::api::{Answer, calendars};
use crate::openapi::{self, OfRead};
use crate::state::State;
use crate::{accept, json, ui};

/// The calendars, by name. Browsers get a page.
#[utoipa::path(
    get, path = "/calendars", tag = "schedules", operation_id = "listCalendars",
    responses(
        (
            status = 200, content((Vec<openapi::Calendar> = "application/json"), (String = "text/html")),
            description = "The calendars; a page if `Accept` asks for HTML.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::calendars::render(&state).await));
    }
    let all = state.store.list_calendars().await?;
    Ok(json::ok(&all.iter().map(calendars::view).collect()))
}
