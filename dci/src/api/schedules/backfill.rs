//! `POST /schedules/:id/backfill`

use std::collections::BTreeSet;

use actix_web::HttpRequest;
use actix_web::web::Data;
use bson::{DateTime, doc};
use disbatch_core::model::Selector;
use disbatch_core::schedules::{BackfillError, MOST_BACKFILLED, Schedule};
use disbatch_core::task::TaskQuery;
use serde_json::{Value, json};

use crate::access::{NamedSchedule, Who, no_such_schedule};
use crate::api::{Answer, create_tasks, then};
use crate::error::HttpError;
use crate::json::date_text;
use crate::openapi::{Backfill, Backfilled, ErrorBody, OfWrite};
use crate::params::Params;
use crate::schedules::{self, moment};
use crate::state::State;
use crate::{accept, changes, json as js, legacy, ui, values};

/// So many times may lie between the first and the last: each of them is looked at.
const MOST_TIMES: usize = 20_000;

/// The tasks of so many times are looked for at once.
const BATCH: usize = 500;

impl From<BackfillError> for HttpError {
    fn from(error: BackfillError) -> Self {
        match error {
            BackfillError::Submit(error) => error.into(),
            BackfillError::Order | BackfillError::Limit(_) => Self::bad_request(error.to_string()),
        }
    }
}

/// A stretch of time, and how many tasks may be made.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    from: DateTime,
    to: DateTime,
    limit: usize,
}

/// Has a schedule make the tasks for the times between `from` and `to` that have none yet, the earliest first. Times to come
/// are not among them. With the option `.preview`, only says which times these are.
#[utoipa::path(
    post, path = "/schedules/{id}/backfill", tag = "schedules", operation_id = "backfillSchedule",
    params(("id" = String, Path, description = "Its id, or its name.", example = "nightly")),
    request_body(content((Backfill = "application/json"), (Backfill = "application/x-www-form-urlencoded"))),
    responses(
        (
            status = 200, content((Backfilled = "application/json"), (String = "text/html")),
            description = "The tasks are made; with `.preview` the times, as a page if `Accept` asks for HTML.",
        ),
        (status = 303, description = "The tasks are made; to the schedule's page, if `Accept` asks for HTML."),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        (status = 409, description = "Its queue accepts no tasks.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    named: NamedSchedule,
    params: Params,
) -> Answer {
    let html = accept::wants_html(&request);
    then::or_page(html, backfill(&state, &who, &named, &params, html).await)
}

async fn backfill(state: &State, who: &Who, named: &NamedSchedule, params: &Params, html: bool) -> Answer {
    let schedule = schedules::find(state, named).await?;
    let wanted = Wanted::of(state, params).await?;
    let missing = wanted.missing(state, &schedule).await?;
    if params.is_on("preview") {
        if html {
            let page =
                ui::schedules::backfill::confirm(&schedule, (wanted.from, wanted.to), &missing, params);
            return Ok(ui::page(page));
        }
        let times: Vec<Value> = missing.iter().map(|time| told(&schedule, *time)).collect();
        return Ok(js::ok(&json!({ "count": times.len(), "times": times })));
    }
    let queue = create_tasks::open_queue(state, &Selector::Id(schedule.settings.queue.0)).await?;
    schedules::check_tenant(who, &queue, &schedule.settings)?;
    create_tasks::fit::check_schedule(state, &queue, &schedule.settings).await?;
    let made =
        changes::backfill_schedule(state, who, &schedule, (wanted.from, wanted.to), wanted.limit).await?;
    let made = made.ok_or_else(|| no_such_schedule(&named.name))?;
    if html {
        return Ok(then::see(&format!("/schedules/{}", schedule.id)));
    }
    let tasks: Vec<String> = made.iter().map(ToString::to_string).collect();
    Ok(js::ok(&json!({ "count": tasks.len(), "tasks": tasks })))
}

impl Wanted {
    async fn of(state: &State, params: &Params) -> Result<Self, HttpError> {
        params.only(&["from", "to", "limit"])?;
        let given = |name: &str| params.fields.get(name).filter(|value| !values::is_unset(value));
        let from = given("from").ok_or_else(|| HttpError::bad_request("from must be given"))?;
        let from = moment("from", from)?;
        let to = given("to").map(|value| moment("to", value)).transpose()?;
        let now = state.store.server_time().await?;
        let to = to.map_or(now, |to| to.min(now));
        if to < from {
            return Err(HttpError::bad_request("to must not be before from, and from must not be to come"));
        }
        let limit = given("limit").map_or(Ok(MOST_BACKFILLED), limit)?;
        Ok(Self { from, to, limit })
    }

    /// The times that have no task.
    async fn missing(self, state: &State, schedule: &Schedule) -> Result<Vec<DateTime>, HttpError> {
        let spec = &schedule.settings.spec;
        let calendars = state.store.calendars_of(spec).await?;
        let before = DateTime::from_millis(self.from.timestamp_millis().saturating_sub(1));
        let times = spec.occurrences(&calendars, before, self.to, MOST_TIMES + 1);
        if times.len() > MOST_TIMES {
            return Err(HttpError::bad_request(format!(
                "from and to are too far apart: more than {MOST_TIMES} times lie between them"
            )));
        }
        let mut missing = Vec::new();
        for batch in times.chunks(BATCH) {
            let done = done(state, schedule, batch).await?;
            missing.extend(batch.iter().copied().filter(|time| !done.contains(time)));
            if missing.len() >= self.limit {
                break;
            }
        }
        missing.truncate(self.limit);
        Ok(missing)
    }
}

/// Which of these times have a task, or are about to have one.
async fn done(
    state: &State,
    schedule: &Schedule,
    times: &[DateTime],
) -> Result<BTreeSet<DateTime>, HttpError> {
    let query = TaskQuery {
        filter: doc! { "schedule": schedule.id, "scheduled_for": { "$in": times.to_vec() } },
        projection: Some(doc! { "scheduled_for": 1 }),
        archive: true,
        ..TaskQuery::default()
    };
    let tasks = state.store.search_tasks(query).await?;
    let of_tasks = tasks.iter().filter_map(|task| task.get_datetime("scheduled_for").ok().copied());
    Ok(of_tasks.chain(schedule.firing.iter().map(|firing| firing.time)).collect())
}

fn limit(value: &Value) -> Result<usize, HttpError> {
    let given = legacy::integer(value).filter(|_| !value.is_boolean());
    let given = given.and_then(|limit| usize::try_from(limit).ok());
    let given = given.filter(|limit| (1..=MOST_BACKFILLED).contains(limit));
    given.ok_or_else(|| HttpError::bad_request(format!("limit must be from 1 to {MOST_BACKFILLED}")))
}

fn told(schedule: &Schedule, time: DateTime) -> Value {
    let local = schedule.settings.spec.zone.local(time);
    json!({ "at": date_text(time), "local": local.get(..19), "offset": local.get(19..) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_limit() {
        assert_eq!(limit(&json!("7")).unwrap(), 7);
        for wrong in [json!(0), json!(1001), json!(-1), json!("x"), json!(true), json!(1.5)] {
            let error = limit(&wrong).unwrap_err().to_string();
            assert_eq!(error, "limit must be from 1 to 1000", "{wrong}");
        }
    }
}
