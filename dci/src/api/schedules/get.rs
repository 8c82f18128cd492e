//! `GET /schedules/:id`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::model::Selector;
use disbatch_core::schedules::Schedule;
use serde_json::Value;

use crate::access::{NamedSchedule, Who};
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, OfRead};
use crate::state::State;
use crate::{accept, json, schedules, ui};

/// One schedule, by name or id. Browsers get a page.
#[utoipa::path(
    get, path = "/schedules/{id}", tag = "schedules", operation_id = "getSchedule",
    params((
        "id" = String, Path, example = "nightly",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    responses(
        (
            status = 200, content((openapi::Schedule = "application/json"), (String = "text/html")),
            description = "The schedule; a page if `Accept` asks for HTML.",
        ),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, named: NamedSchedule) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::schedules::one::render(&state, &who, &named).await));
    }
    let schedule = schedules::find(&state, &named).await?;
    Ok(json::ok(&told(&state, &schedule).await?))
}

/// A schedule as clients see it, with the name of its queue.
pub async fn told(state: &State, schedule: &Schedule) -> Result<Value, HttpError> {
    let queue = state.store.find_queue(&Selector::Id(schedule.settings.queue.0)).await?;
    Ok(schedules::view(schedule, queue.as_ref()))
}
