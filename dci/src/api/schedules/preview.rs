//! `GET /schedules/:id/preview` and `POST /schedules/preview`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::schedules::Schedule;
use serde_json::json;

use crate::access::{NamedSchedule, Who, may_change_schedule, no_such_schedule};
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, NewSchedule, OfSearch, OfWrite, PreviewOptions, SchedulePreview};
use crate::params::Params;
use crate::schedules::{self, Given};
use crate::state::State;
use crate::ui::schedules::form::{self, Preview};
use crate::{accept, json as js, ui};

/// When a schedule makes its next tasks, also if it is paused, and when the clock is changed meanwhile.
#[utoipa::path(
    get, path = "/schedules/{id}/preview", tag = "schedules", operation_id = "previewSchedule",
    params(("id" = String, Path, description = "Its id, or its name.", example = "nightly"), PreviewOptions),
    responses(
        (status = 200, description = "The times.", body = SchedulePreview),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, named: NamedSchedule, params: Params) -> Answer {
    params.only(&[])?;
    let schedule = schedules::find(&state, &named).await?;
    let spec = &schedule.settings.spec;
    let (times, after) = schedules::times(&state, spec, Some(&schedule), &params).await?;
    Ok(js::ok(&schedules::preview(spec, &times, after)))
}

/// When a schedule would make its tasks that has these fields. Nothing is stored, and only the fields about times are looked
/// at. With the option `.html`, the answer has the picture of the pages, or what is wrong, as `html`.
#[utoipa::path(
    post, path = "/schedules/preview", tag = "schedules", operation_id = "previewNewSchedule",
    params(
        (".after" = Option<String>, Query, description = "The times after this one, in place of now; in the body, too."),
        (".limit" = Option<i64>, Query, description = "At most so many, up to 1000; 20 by default; in the body, too."),
    ),
    request_body(content(
        (NewSchedule = "application/json"),
        (NewSchedule = "application/x-www-form-urlencoded"),
    )),
    responses(
        (
            status = 200, content((SchedulePreview = "application/json"), (String = "text/html")),
            description = "The times; the form with the times if `Accept` asks for HTML.",
        ),
        (status = 400, description = "A field is wrong.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn of_fields(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if params.is_on("html") {
        let preview = Preview::of_request(&state, &params, None).await?;
        return Ok(js::ok(&json!({ "html": preview.html()? })));
    }
    if accept::wants_html(&request) {
        let rendered = match changed(&state, &who, &params).await {
            Ok(schedule) => form::again(&state, &who, &params, schedule.as_ref(), None).await,
            Err(error) => Err(error),
        };
        return Ok(ui::page(rendered));
    }
    let spec = Given::read(&params)?.spec(None)?;
    let (times, after) = schedules::times(&state, &spec, None, &params).await?;
    Ok(js::ok(&schedules::preview(&spec, &times, after)))
}

/// The schedule that a form is for, if it is for one that there is.
async fn changed(state: &State, who: &Who, params: &Params) -> Result<Option<Schedule>, HttpError> {
    let Some(id) = params.options.get("schedule").and_then(serde_json::Value::as_str) else {
        return Ok(None);
    };
    let schedule = schedules::find(state, &NamedSchedule::parse(id)).await?;
    // One that is not for them is as if there were none.
    let hide = |error: HttpError| if error.status() == 404 { no_such_schedule(id) } else { error };
    may_change_schedule(who, &schedule, state).await.map_err(hide)?;
    Ok(Some(schedule))
}
