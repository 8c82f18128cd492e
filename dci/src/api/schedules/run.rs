//! `POST /schedules/:id/run`

use actix_web::web::Data;
use disbatch_core::model::Selector;
use serde_json::json;

use crate::access::{NamedSchedule, Who, no_such_schedule};
use crate::api::{Answer, create_tasks, then};
use crate::openapi::{ErrorBody, OfWrite, ScheduleRun};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json as js, schedules};

/// Has a schedule make a task now: whether it is paused or not, and whatever other tasks of it do.
#[utoipa::path(
    post, path = "/schedules/{id}/run", tag = "schedules", operation_id = "runSchedule",
    params(("id" = String, Path, description = "Its id, or its name.", example = "nightly")),
    responses(
        (status = 200, description = "The task is made.", body = ScheduleRun),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        (status = 409, description = "Its queue accepts no tasks.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    then::or_page(then::is_form(&params), run(&state, &who, &named, &params).await)
}

async fn run(state: &State, who: &Who, named: &NamedSchedule, params: &Params) -> Answer {
    params.only(&[])?;
    let schedule = schedules::find(state, named).await?;
    let queue = create_tasks::open_queue(state, &Selector::Id(schedule.settings.queue.0)).await?;
    schedules::check_tenant(who, &queue, &schedule.settings)?;
    create_tasks::fit::check_schedule(state, &queue, &schedule.settings).await?;
    let task = changes::run_schedule(state, who, &schedule).await?;
    let task = task.ok_or_else(|| no_such_schedule(&named.name))?;
    let result = json!({ "id": schedule.id.to_string(), "task": task.to_string() });
    then::answer(params, js::ok(&result))
}
