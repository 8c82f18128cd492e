//! `POST /ui/calendars/:name/delete`: deletes a calendar for browsers that run no script. HTML forms know no `DELETE`.

use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::{Answer, calendars, then};
use crate::openapi::{ErrorBody, OfWrite};
use crate::state::State;

/// Deletes a calendar that no schedule goes by, and leads to the list of calendars.
#[utoipa::path(
    post, path = "/ui/calendars/{name}/delete", tag = "service", operation_id = "deleteCalendarByForm",
    params(("name" = String, Path, description = "Its name.", example = "holidays")),
    responses(
        (status = 303, description = "Deleted; the list of calendars is next."),
        (status = 404, description = "There is no such calendar. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        (status = 409, description = "Schedules go by it. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    then::lead(calendars::delete::delete(&state, &who, &name).await, "/calendars")
}
