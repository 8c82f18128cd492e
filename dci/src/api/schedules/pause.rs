//! `POST /schedules/:id/pause` and `POST /schedules/:id/resume`

use actix_web::web::Data;
use disbatch_core::model::Selector;

use super::get::told;
use crate::access::{NamedSchedule, Who, may_change_schedule, no_such_schedule};
use crate::api::{Answer, then};
use crate::openapi::{self, ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, schedules};

/// Has a schedule make no tasks by itself. Those that it has made go on, and it can be told to make one.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    post, path = "/schedules/{id}/pause", tag = "schedules", operation_id = "pauseSchedule",
    params(("id" = String, Path, description = "Its id, or its name.", example = "nightly")),
    responses(
        (status = 200, description = "It is paused.", body = openapi::Schedule),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn pause(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    then::or_page(then::is_form(&params), set(&state, &who, &named, &params, true).await)
}

/// Has a schedule make tasks by itself again. The times that have passed meanwhile are not made up for.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    post, path = "/schedules/{id}/resume", tag = "schedules", operation_id = "resumeSchedule",
    params(("id" = String, Path, description = "Its id, or its name.", example = "nightly")),
    responses(
        (status = 200, description = "It is not paused.", body = openapi::Schedule),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn resume(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    then::or_page(then::is_form(&params), set(&state, &who, &named, &params, false).await)
}

async fn set(state: &State, who: &Who, named: &NamedSchedule, params: &Params, paused: bool) -> Answer {
    params.only(&[])?;
    let schedule = schedules::find(state, named).await?;
    may_change_schedule(who, &schedule, state).await?;
    if !changes::pause_schedule(state, who, schedule.id, paused).await? {
        return Err(no_such_schedule(&named.name));
    }
    let by_id = NamedSchedule { name: named.name.clone(), selector: Selector::Id(schedule.id.0) };
    let schedule = schedules::find(state, &by_id).await?;
    then::answer(params, json::ok(&told(state, &schedule).await?))
}
