//! `GET /calendars/:name`

use actix_web::web::{Data, Path};

use crate::api::{Answer, calendars};
use crate::json;
use crate::openapi::{self, ErrorBody, OfRead};
use crate::state::State;

/// One calendar.
#[utoipa::path(
    get, path = "/calendars/{name}", tag = "schedules", operation_id = "getCalendar",
    params(("name" = String, Path, description = "Its name.", example = "holidays")),
    responses(
        (status = 200, description = "The calendar.", body = openapi::Calendar),
        (status = 404, description = "There is no such calendar.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, name: Path<String>) -> Answer {
    let calendar = state.store.find_calendar(&name).await?;
    Ok(json::ok(&calendars::view(&calendar.ok_or_else(|| calendars::not_found(&name))?)))
}
