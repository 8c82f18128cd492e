//! `DELETE /calendars/:name`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::schedules::CalendarDeleted;
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::{Answer, calendars};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite};
use crate::state::State;
use crate::{changes, json as js};

/// Deletes a calendar that no schedule goes by.
#[utoipa::path(
    delete, path = "/calendars/{name}", tag = "schedules", operation_id = "deleteCalendar",
    params(("name" = String, Path, description = "Its name.", example = "holidays")),
    responses(
        (
            status = 200, description = "Deleted.", body = Object,
            example = json!({"name": "holidays", "deleted": true}),
        ),
        (status = 404, description = "There is no such calendar.", body = ErrorBody),
        (status = 409, description = "Schedules go by it; `schedules` has their names.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    Ok(js::ok(&delete(&state, &who, &name).await?))
}

/// Deletes the calendar with this name. Returns the result as clients see it.
pub async fn delete(state: &State, who: &Who, name: &str) -> Result<Value, HttpError> {
    match changes::delete_calendar(state, who, name.to_owned()).await? {
        CalendarDeleted::Deleted(_) => Ok(json!({ "name": name, "deleted": true })),
        CalendarDeleted::NoSuchCalendar => Err(calendars::not_found(name)),
        CalendarDeleted::InUse(schedules) => {
            let error = format!("schedules go by the calendar '{name}': {}", schedules.join(", "));
            let body = json!({ "error": error, "schedules": schedules });
            Err(HttpError::with_body(StatusCode::CONFLICT, body))
        }
    }
}
