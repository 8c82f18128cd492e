//! `POST /schedules`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_core::schedules::Schedule;
use serde_json::Value;

use super::get::told;
use crate::access::Who;
use crate::api::{Answer, then};
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, NewSchedule, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, schedules, ui};

/// Makes a schedule. It needs `name` and `queue`; without `cron` it makes tasks only when somebody asks for one. Its secure parameters come as `.secure_params`, as those of tasks.
#[utoipa::path(
    post, path = "/schedules", tag = "schedules", operation_id = "createSchedule",
    request_body(content(
        (NewSchedule = "application/json"),
        (NewSchedule = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 201, description = "Made.", body = openapi::Schedule),
        (status = 400, description = "A parameter is missing or wrong, or there is no such queue.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "Another schedule has the name. Who may not see all schedules gets 403 instead.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let is_form = then::is_form(&params);
    match create(&state, &who, &params).await {
        Ok(schedule) => then::or_page(is_form, answer(&state, params, &schedule).await),
        Err(error) if is_form => {
            let form = ui::schedules::form::again(&state, &who, &params, None, Some(&error));
            Ok(ui::page(form.await))
        }
        Err(error) => Err(error),
    }
}

async fn create(state: &State, who: &Who, params: &Params) -> Result<Schedule, HttpError> {
    let (settings, paused) = schedules::new_settings(state, who, params).await?;
    let created = changes::create_schedule(state, who, settings, paused).await;
    created.map_err(|error| schedules::refused(error, who))
}

/// `{id}` in `.then` stands for the new schedule.
async fn answer(state: &State, mut params: Params, schedule: &Schedule) -> Answer {
    let id = schedule.id.to_string();
    if let Some(Value::String(then)) = params.options.get_mut("then") {
        *then = then.replace("{id}", &id);
    }
    let told = told(state, schedule).await?;
    then::answer(&params, json::made(StatusCode::CREATED, &format!("/schedules/{id}"), &told))
}
