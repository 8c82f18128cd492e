//! The times of a schedule, and the tasks of these: to come, now, and in the past.

use actix_web::HttpRequest;
use actix_web::web::Data;
use bson::{Bson, DateTime, doc};
use disbatch_core::metrics::labels::Refusal;
use disbatch_core::model::{Selector, Status};
use disbatch_core::schedules::{BackfillError, MOST_BACKFILLED, Schedule, Settings};
use disbatch_wire::liberal::{When, Whole};
use disbatch_wire::schedules::{
    Backfill, Backfilled, MissingTime, NewSchedule, PreviewOptions, RunOfSchedule, RunsOfSchedule,
    RunsSearch, SchedulePreview, ScheduleRun,
};
use serde_json::json;

use crate::access::{NamedSchedule, Sight, Who, may_change_schedule, no_such_schedule};
use crate::api::{Answer, create_tasks, redirect};
use crate::error::HttpError;
use crate::json::date_text;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE, OfRead};
use crate::params::Params;
use crate::schedules::view::{Run, find_runs};
use crate::schedules::{Given, moment};
use crate::state::State;
use crate::ui::schedules::form::{self, Preview};
use crate::{accept, changes, gates, json as js, measure, schedules, ui};

/// So many runs are told unless asked otherwise.
const USUAL: i64 = 50;

/// So many times may lie between the first and the last of a backfill: each of them is looked at.
const MOST_TIMES: usize = 20_000;

impl From<BackfillError> for HttpError {
    fn from(error: BackfillError) -> Self {
        match error {
            BackfillError::Submit(error) => error.into(),
            BackfillError::Order | BackfillError::Limit(_) => Self::bad_request(error.to_string()),
        }
    }
}

/// When a schedule makes its next tasks, also if it is paused, and when the clock is changed meanwhile.
#[utoipa::path(
    get, path = "/schedules/{id}/preview", tag = "schedules", operation_id = "previewSchedule",
    params(PreviewOptions),
    responses(
        (status = 200, description = "The times.", body = SchedulePreview),
        (status = 400, description = "An option is wrong."),
    ),
)]
pub async fn preview(state: Data<State>, named: NamedSchedule, params: Params) -> Answer {
    let options: PreviewOptions = params.whole()?;
    let schedule = schedules::find(&state, &named).await?;
    let spec = &schedule.settings.spec;
    let (times, after) = schedules::times(&state, spec, Some(&schedule), &options).await?;
    js::of(&schedules::preview(spec, &times, after))
}

/// When a schedule would make its tasks that has these fields. Nothing is stored, and only the fields about times are looked
/// at. With the option `.html`, the answer has the picture of the pages, or what is wrong, as `html`.
#[utoipa::path(
    post, path = "/schedules/preview", tag = "schedules", operation_id = "previewNewSchedule",
    params(
        (".after" = Option<String>, Query, description = "The times after this one, in place of now; in the body, too."),
        (".limit" = Option<i64>, Query, description = "At most so many, up to 1000; 20 by default; in the body, too."),
    ),
    request_body(content = NewSchedule, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "The times; the form with the times if `Accept` asks for HTML.", body = SchedulePreview,
            content_type = JSON_OR_PAGE),
        (status = 400, description = "A field is wrong."),
    ),
)]
pub async fn preview_new(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if params.is_on("html") {
        let preview = Preview::of_request(&state, &params, None).await?;
        return Ok(js::ok(&json!({ "html": ui::html(&preview)? })));
    }
    if accept::wants_html(&request) {
        let rendered = match changed(&state, &who, &params).await {
            Ok(schedule) => form::again(&state, &who, &params, schedule.as_ref(), None).await,
            Err(error) => Err(error),
        };
        return Ok(ui::page(rendered));
    }
    let (spec, options) = (Given::read(&params)?.spec()?, params.options()?);
    let (times, after) = schedules::times(&state, &spec, None, &options).await?;
    js::of(&schedules::preview(&spec, &times, after))
}

/// The schedule that a form is for, if it is for one that there is.
async fn changed(state: &State, who: &Who, params: &Params) -> Result<Option<Schedule>, HttpError> {
    let Some(id) = params.options.get("schedule").and_then(serde_json::Value::as_str) else {
        return Ok(None);
    };
    let schedule = schedules::find(state, &NamedSchedule::parse(id)).await?;
    let allowed = may_change_schedule(who, &schedule, state).await;
    allowed.map_err(|error| error.hidden_as(|| no_such_schedule(id)))?;
    Ok(Some(schedule))
}

/// Has a schedule make a task now: whether it is paused or not, and whatever other tasks of it do.
#[utoipa::path(
    post, path = "/schedules/{id}/run", tag = "schedules", operation_id = "runSchedule",
    responses(
        (status = 200, description = "The task is made.", body = ScheduleRun),
        (status = 409, description = "Its queue accepts no tasks."),
    ),
)]
pub async fn run(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    params.only(&[])?;
    let schedule = schedules::find(&state, &named).await?;
    check(&state, &who, &schedule.settings).await?;
    let task = changes::run_schedule(&state, &who, &schedule).await?;
    let task = task.ok_or_else(|| no_such_schedule(&named.name))?;
    redirect::reply(&params, &ScheduleRun { id: schedule.id.to_string(), task: task.to_string() })
}

/// The runs of a schedule, the latest first, archived ones among them: its tasks, for which time each is, and what became of it. `.before` goes
/// on behind the last one of an answer, which `next` names.
#[utoipa::path(
    get, path = "/schedules/{id}/runs", tag = "schedules", operation_id = "runsOfSchedule",
    params(RunsSearch),
    responses(
        (status = 200, description = "The runs.", body = RunsOfSchedule),
        (status = 400, description = "A parameter makes no sense."),
        (status = 404, description = "There is no such schedule."),
        OfRead,
    ),
)]
pub async fn runs(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    let search: RunsSearch = params.whole()?;
    let limit = search.limit.map_or(USUAL, |Whole(limit)| limit);
    let before = search.before.map(|When(before)| moment(".before", &before)).transpose()?;
    let schedule = schedules::find(&state, &named).await?;
    let mut time = doc! { "$exists": true };
    time.extend(before.map(|before| ("$lt".to_owned(), Bson::from(before))));
    let mut filter = doc! { "schedule": schedule.id, "scheduled_for": time };
    if let Sight::Only(queues) = gates::sight(&state, &who).await? {
        // It may have had another queue before.
        filter.insert("queue", doc! { "$in": queues.iter().map(|queue| queue.0).collect::<Vec<_>>() });
    }
    // One more, to know whether there are others.
    let mut found = find_runs(&state.store, filter, limit.saturating_add(1), true).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_cut = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| is_cut).and_then(|last| exact(last.time));
    js::of(&RunsOfSchedule { runs: found.iter().map(told).collect(), next })
}

/// A time with its milliseconds, so that it can be given back.
fn exact(at: Option<DateTime>) -> Option<String> {
    at?.try_to_rfc3339_string().ok()
}

fn told(run: &Run) -> RunOfSchedule {
    RunOfSchedule {
        task: run.task.map(|id| id.to_hex()),
        time: exact(run.time),
        status: run.code,
        word: run.code.map(|code| Status::from_code(code).word().to_owned()),
        queue: run.queue.map(|id| id.to_hex()),
        node: run.node.as_ref().and_then(Bson::as_str).map(str::to_owned),
        started: run.started.and_then(date_text),
        ended: run.ended.and_then(date_text),
        asked_for: run.asked_for,
    }
}

/// Has a schedule make the tasks for the times between `from` and `to` that have none yet, the earliest first. Times to come
/// are not among them. With the option `.preview`, only says which times these are.
#[utoipa::path(
    post, path = "/schedules/{id}/backfill", tag = "schedules", operation_id = "backfillSchedule",
    request_body(content = Backfill, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "The tasks are made; with `.preview` the times, as a page if `Accept` asks for HTML.",
            body = Backfilled, content_type = JSON_OR_PAGE),
        (status = 303, description = "The tasks are made; to the schedule's page, if `Accept` asks for HTML."),
        (status = 409, description = "Its queue accepts no tasks."),
    ),
)]
pub async fn backfill(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    named: NamedSchedule,
    params: Params,
) -> Answer {
    let html = accept::wants_html(&request);
    redirect::or_page(html, make_missing(&state, &who, &named, &params, html).await)
}

async fn make_missing(
    state: &State,
    who: &Who,
    named: &NamedSchedule,
    params: &Params,
    html: bool,
) -> Answer {
    let schedule = schedules::find(state, named).await?;
    let wanted: Backfill = params.whole()?;
    let limit =
        wanted.limit.map_or(MOST_BACKFILLED, |Whole(limit)| usize::try_from(limit).unwrap_or_default());
    let from = moment("from", &wanted.from.0)?;
    let to = wanted.to.map(|When(to)| moment("to", &to)).transpose()?;
    let now = state.store.server_time().await?;
    let to = to.map_or(now, |to| to.min(now));
    if to < from {
        return Err(HttpError::bad_request("to must not be before from, and from must not be to come"));
    }
    let spec = &schedule.settings.spec;
    let calendars = state.store.calendars_of(spec).await?;
    let before = DateTime::from_millis(from.timestamp_millis().saturating_sub(1));
    let times = spec.occurrences(&calendars, before, to, MOST_TIMES + 1);
    if times.len() > MOST_TIMES {
        return Err(HttpError::bad_request(format!(
            "from and to are too far apart: more than {MOST_TIMES} times lie between them"
        )));
    }
    if params.is_on("preview") {
        let missing = state.store.times_without_task(&schedule, &times, limit).await?;
        if html {
            return Ok(ui::page(ui::schedules::one::confirm(&schedule, (from, to), &missing, params)));
        }
        let times = missing.iter().map(|time| {
            let local = spec.zone.local(*time);
            let part = |part: Option<&str>| part.map(str::to_owned);
            MissingTime { at: date_text(*time), local: part(local.get(..19)), offset: part(local.get(19..)) }
        });
        return js::of(&Backfilled { count: missing.len(), times: Some(times.collect()), tasks: None });
    }
    check(state, who, &schedule.settings).await?;
    let made = changes::backfill_schedule(state, who, &schedule, (from, to), limit).await?;
    let made = made.ok_or_else(|| no_such_schedule(&named.name))?;
    if html {
        return Ok(redirect::see(&format!("/schedules/{}", schedule.id)));
    }
    let tasks: Vec<String> = made.iter().map(ToString::to_string).collect();
    js::of(&Backfilled { count: tasks.len(), tasks: Some(tasks), times: None })
}

/// Whether tasks with these settings are taken from whoever asks for them.
async fn check(state: &State, who: &Who, settings: &Settings) -> Result<(), HttpError> {
    let queue = create_tasks::open_queue(state, &Selector::Id(settings.queue.0)).await?;
    create_tasks::options::check_tenant(who, &queue, settings.tenant.as_deref())?;
    let checked = create_tasks::fit::check_schedule(state, &queue, settings).await;
    checked.inspect_err(|_| measure::refused(state.store.metrics(), queue.id, Refusal::Schema))
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_run_is_told_with_its_time() {
        let at = DateTime::from_millis(1_795_163_067_344);
        let id = ObjectId::from_bytes([7; 12]);
        let of = |status: i32| {
            told(&Run::of(
                &doc! { "_id": id, "queue": id, "status": status, "scheduled_for": at, "started": at, "mtime": at, "node": "vm" },
            ))
        };
        let run = of(1);
        assert_eq!(
            (run.time.as_deref(), run.word.as_deref()),
            (Some("2026-11-20T08:24:27.344Z"), Some("succeeded"))
        );
        assert_eq!((run.ended.as_deref(), run.task), (Some("2026-11-20T08:24:27"), Some(id.to_hex())));
        assert_eq!(of(0).ended, None);
        assert_eq!(told(&Run::of(&doc! { "status": "odd" })).status, None);
    }

    #[test]
    fn there_is_a_limit() {
        let of = |limit: serde_json::Value| {
            let fields = json!({ "from": 0, "limit": limit }).as_object().unwrap().clone();
            let read = Params { fields, ..Params::default() }.whole::<Backfill>();
            read.map(|backfill| backfill.limit).map_err(|error| error.to_string())
        };
        assert_eq!(of(json!("7")), Ok(Some(Whole(7))));
        for wrong in [json!(0), json!(1001), json!(-1), json!("x"), json!(true), json!(1.5)] {
            assert_eq!(of(wrong.clone()), Err("limit must be from 1 to 1000".to_owned()), "{wrong}");
        }
    }
}
