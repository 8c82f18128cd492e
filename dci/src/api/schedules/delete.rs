//! `DELETE /schedules/:id`

use actix_web::web::Data;
use serde_json::{Value, json};

use crate::access::{NamedSchedule, Who, may_change_schedule, no_such_schedule};
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{Deleted, ErrorBody, OfWrite};
use crate::state::State;
use crate::{changes, json as js, schedules};

/// Deletes a schedule, with what its plugin has saved. The tasks that it has made stay.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    delete, path = "/schedules/{id}", tag = "schedules", operation_id = "deleteSchedule",
    params((
        "id" = String, Path, example = "nightly",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    responses(
        (status = 200, description = "Deleted.", body = Deleted),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedSchedule) -> Answer {
    Ok(js::ok(&delete(&state, &who, &named).await?))
}

/// Deletes the schedule with this name or id. Returns the result as clients see it.
pub async fn delete(state: &State, who: &Who, named: &NamedSchedule) -> Result<Value, HttpError> {
    let schedule = schedules::find(state, named).await?;
    may_change_schedule(who, &schedule, state).await?;
    if !changes::delete_schedule(state, who, schedule.id).await? {
        return Err(no_such_schedule(&named.name));
    }
    Ok(json!({ "id": schedule.id.to_string(), "name": schedule.settings.name, "deleted": true }))
}
