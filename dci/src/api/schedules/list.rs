//! `GET /schedules`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::accounts::Role;
use disbatch_core::schedules::Schedule;

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{self, ErrorBody, OfSearch, ScheduleSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, json, schedules, ui};

/// The schedules of all queues that the client may see, by name.
#[utoipa::path(
    get, path = "/schedules", tag = "schedules", operation_id = "listSchedules",
    params(ScheduleSearch),
    responses(
        (
            status = 200, content((Vec<openapi::Schedule> = "application/json"), (String = "text/html")),
            description = "The schedules; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "A parameter makes no sense.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::schedules::render(&state, &who, &params).await));
    }
    let reach = who.reach(Role::Viewer);
    let query = schedules::query(&state, reach.clone(), &params).await?;
    let (found, queues) =
        futures::try_join!(state.store.list_schedules(&query), state.store.queues_within(&reach))?;
    let view = |schedule: &Schedule| {
        let queue = queues.iter().find(|queue| queue.id == schedule.settings.queue);
        schedules::view(schedule, queue)
    };
    Ok(json::ok(&found.iter().map(view).collect()))
}
