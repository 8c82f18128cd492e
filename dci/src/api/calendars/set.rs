//! `POST /calendars` and `POST /calendars/:name`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::schedules::Calendar;

use crate::access::Who;
use crate::api::{Answer, calendars, then};
use crate::error::HttpError;
use crate::openapi::{self, CalendarDays, ErrorBody, NewCalendar, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::{changes, json, values};

/// Makes a calendar.
#[utoipa::path(
    post, path = "/calendars", tag = "schedules", operation_id = "createCalendar",
    request_body(content(
        (NewCalendar = "application/json"),
        (NewCalendar = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 201, description = "Made.", body = openapi::Calendar),
        (status = 400, description = "A field is wrong.", body = ErrorBody),
        (status = 409, description = "There is a calendar with this name.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn create(state: Data<State>, who: Who, params: Params) -> Answer {
    then::or_page(then::is_form(&params), make(&state, &who, &params).await)
}

/// Gives a calendar these days and no others; makes it if there is none. The next times of all schedules that go by it are
/// found anew.
#[utoipa::path(
    post, path = "/calendars/{name}", tag = "schedules", operation_id = "setCalendar",
    params(("name" = String, Path, description = "Its name.", example = "holidays")),
    request_body(content(
        (CalendarDays = "application/json"),
        (CalendarDays = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Stored.", body = openapi::Calendar),
        (status = 400, description = "A field is wrong.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    then::or_page(then::is_form(&params), set(&state, &who, &name, &params).await)
}

async fn make(state: &State, who: &Who, params: &Params) -> Answer {
    let given = params.fields.get("name").filter(|value| !values::is_unset(value));
    let name = given.ok_or_else(|| HttpError::bad_request("name must be given"))?;
    let name = values::text("name", name)?;
    let calendar = read(&name, params, &["name"])?;
    if state.store.find_calendar(&name).await?.is_some() {
        return Err(HttpError::conflict(format!("there is a calendar '{name}' already")));
    }
    let place = format!("/calendars/{}", encoded(&name));
    let made = json::made(StatusCode::CREATED, &place, &calendars::view(&calendar));
    changes::set_calendar(state, who, calendar).await?;
    then::answer(params, made)
}

async fn set(state: &State, who: &Who, name: &str, params: &Params) -> Answer {
    let calendar = read(name, params, &[])?;
    let stored = json::ok(&calendars::view(&calendar));
    changes::set_calendar(state, who, calendar).await?;
    then::answer(params, stored)
}

fn read(name: &str, params: &Params, more: &[&str]) -> Result<Calendar, HttpError> {
    params.only(&[&calendars::FIELDS[..], more].concat())?;
    calendars::read(name, params)
}
