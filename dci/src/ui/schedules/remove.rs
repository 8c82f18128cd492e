//! `POST /ui/schedules/:id/delete`: deletes a schedule for browsers that run no script. HTML forms know no `DELETE`.

use actix_web::web::Data;

use crate::access::{NamedSchedule, Who};
use crate::api::{Answer, schedules, then};
use crate::openapi::{ErrorBody, OfWrite};
use crate::state::State;

/// Deletes a schedule, whose tasks stay, and leads to the list of schedules.
#[utoipa::path(
    post, path = "/ui/schedules/{id}/delete", tag = "service", operation_id = "deleteScheduleByForm",
    params(("id" = String, Path, description = "The schedule's id.", example = "6b0003bb686c8275d8014444")),
    responses(
        (status = 303, description = "Deleted; the list of schedules is next."),
        (status = 404, description = "There is no such schedule. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedSchedule) -> Answer {
    then::lead(schedules::delete::delete(&state, &who, &named).await, "/schedules")
}
