//! From the parameters of a request to the settings of a schedule, and from a schedule to what clients see.

mod request;
pub mod view;

use actix_web::http::StatusCode;
use bson::DateTime;
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::model::{Queue, Selector};
use disbatch_core::schedules::{Occurrence, Schedule, ScheduleError, ScheduleQuery, Settings, Spec};
use disbatch_wire::liberal::{Flag, Text, When, Whole, is_unset};
use disbatch_wire::schedules::{PreviewOptions, ScheduleSearch};
use serde_json::json;

use crate::access::{NamedSchedule, Who, no_such_schedule};
use crate::api::create_tasks::{fit, options, tenant};
use crate::error::HttpError;
use crate::legacy;
use crate::params::Params;
use crate::state::State;
pub use request::{Given, moment};
pub use view::{offset, preview, view};

/// So many times are shown unless told otherwise.
pub const SHOWN: usize = 20;

/// So many schedules are answered at most.
const MOST: i64 = 1_000;

/// What stands in addresses where names do.
const RESERVED: [&str; 2] = ["new", "preview"];

impl From<ScheduleError> for HttpError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Store(error) => error.into(),
            ScheduleError::OverQuota(over) => over.into(),
            ScheduleError::OverBudget(over) => over.into(),
            ScheduleError::Busy(busy) => busy.into(),
            ScheduleError::CalendarInUse { ref schedules, .. } => Self::with_body(
                StatusCode::CONFLICT,
                json!({ "error": error.to_string(), "schedules": schedules }),
            ),
            ScheduleError::NameTaken(_) => Self::conflict(error.to_string()),
            ScheduleError::SealedForAnotherQueue => {
                Self::bad_request(".secure_params has to be given again when the queue changes")
            }
            ScheduleError::Wrong(_) | ScheduleError::NoSuchCalendar(_) => {
                Self::bad_request(error.to_string())
            }
        }
    }
}

/// Why a schedule is not as somebody wants it. Who may not see all of them is not told which names there are.
pub fn refused(error: ScheduleError, who: &Who) -> HttpError {
    match error {
        ScheduleError::NameTaken(_) if !who.is_everywhere(Role::Viewer) => HttpError::name_not_allowed(),
        other => other.into(),
    }
}

pub async fn find(state: &State, named: &NamedSchedule) -> Result<Schedule, HttpError> {
    let schedule = state.store.find_schedule(&named.selector).await?;
    schedule.ok_or_else(|| no_such_schedule(&named.name))
}

/// The settings of a new schedule, or of `before` with what a request gives in their place, and whether it is to be paused.
/// No settings: the request gives none for a schedule that there is.
pub async fn settings(
    state: &State,
    who: &Who,
    before: Option<&Schedule>,
    params: &Params,
) -> Result<(Option<Settings>, Option<bool>), HttpError> {
    let given = Given::read(params)?;
    if before.is_some() && !given.has_settings(params) {
        return Ok((None, given.paused()));
    }
    let before = before.map(|schedule| &schedule.settings);
    let queue = match (queue(state, who, &given).await?, before) {
        (Some(queue), _) => queue,
        (None, Some(Settings { queue: id, .. })) => {
            let known = state.store.find_queue(&Selector::Id(id.0)).await?;
            known.unwrap_or_else(|| Queue::without_document(*id))
        }
        (None, None) => return Err(HttpError::bad_request("queue must be given")),
    };
    let options = given.options(params, queue.id, &state.keys, before.map(|before| &before.options))?;
    options::check_steps(state, who, &queue, &options.steps).await?;
    let settings = given.settings(before, (&queue, options), who.name.as_deref())?;
    check_tenant(who, &queue, &settings)?;
    options::check_files(who, settings.options.files.as_ref(), settings.tenant.as_deref())?;
    fit::check_schedule(state, &queue, &settings).await?;
    Ok((Some(settings), given.paused()))
}

/// Sees to it that nobody has tasks made for a tenant for whom they could not submit any.
pub fn check_tenant(who: &Who, queue: &Queue, settings: &Settings) -> Result<(), HttpError> {
    match settings.tenant.as_deref().filter(|tenant| queue.tenant() != Some(*tenant)) {
        Some(tenant) => tenant::check(who, tenant),
        None => Ok(()), // Who may submit to the queue may do so for its tenant.
    }
}

/// The queue that a request gives, by name or id, if whoever asks may submit tasks to it.
async fn queue(state: &State, who: &Who, given: &Given) -> Result<Option<Queue>, HttpError> {
    let Some(name) = given.queue() else { return Ok(None) };
    let queue = state.store.find_queue(&Selector::parse(name)).await?;
    let queue = queue.filter(|queue| who.sees(queue));
    let queue = queue.ok_or_else(|| HttpError::bad_request("queue not found"))?;
    who.check(Role::Submitter, &queue)?;
    Ok(Some(queue))
}

/// Which schedules are asked for. An empty field of a form is no condition.
pub async fn query(state: &State, reach: Reach, params: &Params) -> Result<ScheduleQuery, HttpError> {
    let search: ScheduleSearch = params.whole()?;
    let queue = match &search.queue {
        None => None,
        Some(Text(name)) => {
            let found = state.store.find_queue(&Selector::parse(name)).await?;
            let known = found.filter(|queue| reach == Reach::All || is_within(&reach, queue));
            Some(known.ok_or_else(|| HttpError::bad_request("queue not found"))?.id)
        }
    };
    let text = |given: Option<Text>| given.map(|Text(text)| text);
    Ok(ScheduleQuery {
        reach,
        queue,
        tenant: text(search.tenant),
        paused: search.paused.map(|Flag(paused)| paused),
        after: text(search.after),
        limit: search.limit.map_or(MOST, |Whole(limit)| limit),
    })
}

fn is_within(reach: &Reach, queue: &Queue) -> bool {
    let Reach::Some { queues, tenants, only } = reach else { return true };
    let is_named =
        queues.contains(&queue.id) || queue.tenant().is_some_and(|tenant| tenants.contains(tenant));
    is_named && only.as_ref().is_none_or(|only| only.contains(&queue.id))
}

/// What a schedule would do from when on: its next times, and what the first of them are after.
pub async fn times(
    state: &State,
    spec: &Spec,
    schedule: Option<&Schedule>,
    options: &PreviewOptions,
) -> Result<(Vec<Occurrence>, DateTime), HttpError> {
    let after = match &options.after {
        Some(When(value)) => moment(".after", value)?,
        None => state.store.server_time().await?,
    };
    let limit = options.limit.and_then(|Whole(limit)| usize::try_from(limit).ok()).unwrap_or(SHOWN);
    let calendars = state.store.calendars_of(spec).await?;
    if let Some(name) = calendars.missing(spec) {
        return Err(ScheduleError::NoSuchCalendar(name.to_owned()).into());
    }
    Ok((spec.preview(schedule.map(|schedule| schedule.id), &calendars, after, limit), after))
}

/// The revision that a change was made from, by the option `.rev`, if that is said.
pub fn revision(params: &Params) -> Result<Option<i64>, HttpError> {
    let given = params.options.get("rev").filter(|value| !is_unset(value));
    let wrong = || HttpError::bad_request(".rev must be the number of a revision");
    given.map(|value| legacy::integer(value).filter(|_| !value.is_boolean()).ok_or_else(wrong)).transpose()
}

pub fn changed_meanwhile(rev: i64) -> HttpError {
    let message = format!("the schedule was changed meanwhile: its revision is {rev}. Nothing is changed");
    HttpError::with_body(StatusCode::CONFLICT, json!({ "error": message, "rev": rev }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::model::QueueId;
    use serde_json::Value;

    use super::*;

    fn params(options: Value) -> Params {
        Params { options: options.as_object().unwrap().clone(), ..Params::default() }
    }

    #[test]
    fn limits_and_revisions_are_numbers() {
        let limit = |options: Value| params(options).whole::<PreviewOptions>().map(|options| options.limit);
        assert_eq!(limit(json!({ "limit": "", "pretty": 1 })).unwrap(), None);
        assert_eq!(limit(json!({ "limit": "5" })).unwrap(), Some(Whole(5)));
        for wrong in [json!(0), json!(1001), json!(-1)] {
            let error = limit(json!({ "limit": wrong })).unwrap_err().to_string();
            assert_eq!(error, ".limit must be from 1 to 1000");
        }
        assert_eq!(revision(&params(json!({}))).unwrap(), None);
        assert_eq!(revision(&params(json!({ "rev": "7" }))).unwrap(), Some(7));
        for wrong in [json!("x"), json!(true), json!([])] {
            assert!(revision(&params(json!({ "rev": wrong }))).is_err());
        }
        let error = changed_meanwhile(4);
        assert!(error.status() == 409 && error.json().contains("\"rev\":4"), "{}", error.json());
    }

    #[test]
    fn a_queue_is_found_within_reach_alone() {
        let queue = |tenant: &str| -> Queue {
            let id = ObjectId::from_bytes([1; 12]);
            bson::deserialize_from_document(doc! { "_id": id, "name": "mail", "tenant": tenant }).unwrap()
        };
        let id = QueueId(ObjectId::from_bytes([1; 12]));
        let reach = |queues: &[QueueId], tenants: &[&str], only: Option<&[QueueId]>| Reach::Some {
            queues: queues.iter().copied().collect(),
            tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
            only: only.map(|only| only.iter().copied().collect::<BTreeSet<_>>()),
        };
        assert!(is_within(&Reach::All, &queue("acme")));
        assert!(is_within(&reach(&[id], &[], None), &queue("acme")));
        assert!(is_within(&reach(&[], &["acme"], Some(&[id])), &queue("acme")));
        assert!(!is_within(&reach(&[], &["acme"], None), &queue("other")));
        assert!(!is_within(&reach(&[id], &[], Some(&[])), &queue("acme")));
    }
}
