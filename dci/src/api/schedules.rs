//! Schedules: tasks that are made again and again.

pub mod times;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_core::accounts::Role;
use disbatch_core::model::Selector;
use disbatch_core::schedules::{Schedule as Stored, Updated};
use disbatch_wire::schedules::{NewSchedule, Schedule, ScheduleChange, ScheduleDeleted, ScheduleSearch};
use serde_json::Value;

use crate::access::{NamedSchedule, Who, may_change_schedule, no_such_schedule};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::ui::schedules::form;
use crate::{changes, json, schedules, ui};

/// How often a change is tried that others get in the way of, if it does not say from which revision it was made.
const TRIES: usize = 5;

/// The schedules of all queues that the client may see, by name.
#[utoipa::path(
    get, path = "/schedules", tag = "schedules", operation_id = "listSchedules",
    params(ScheduleSearch),
    responses(
        (status = 200, description = "The schedules; a page if `Accept` asks for HTML.", body = Vec<Schedule>, content_type = JSON_OR_PAGE),
        (status = 400, description = "A parameter makes no sense."),
    ),
)]
pub async fn list(state: Data<State>, who: Who, params: Params) -> Answer {
    let reach = who.reach(Role::Viewer);
    let query = schedules::query(&state, reach.clone(), &params).await?;
    let (found, queues) =
        futures::try_join!(state.store.list_schedules(&query), state.store.queues_within(&reach))?;
    let view = |schedule: &Stored| {
        let queue = queues.iter().find(|queue| queue.id == schedule.settings.queue);
        schedules::view(schedule, queue)
    };
    json::of(&found.iter().map(view).collect::<Vec<_>>())
}

/// One schedule, by name or id. Browsers get a page.
#[utoipa::path(
    get, path = "/schedules/{id}", tag = "schedules", operation_id = "getSchedule",
    responses(
        (status = 200, description = "The schedule; a page if `Accept` asks for HTML.", body = Schedule, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn get(state: Data<State>, named: NamedSchedule) -> Answer {
    json::of(&told(&state, &schedules::find(&state, &named).await?).await?)
}

/// Makes a schedule. It needs `name` and `queue`; without `cron` it makes tasks only when somebody asks for one. Its secure parameters come as `.secure_params`, as those of tasks.
#[utoipa::path(
    post, path = "/schedules", tag = "schedules", operation_id = "createSchedule",
    request_body(content = NewSchedule, content_type = JSON_OR_FORM),
    responses(
        (status = 201, description = "Made.", body = Schedule),
        (status = 400, description = "A parameter is missing or wrong, or there is no such queue."),
        (status = 409, description = "Another schedule has the name. Who may not see all schedules gets 403 instead."),
    ),
)]
pub async fn create(state: Data<State>, who: Who, mut params: Params) -> Answer {
    let made = async {
        let (settings, paused) = schedules::settings(&state, &who, None, &params).await?;
        let settings = settings.ok_or_else(|| HttpError::bad_request("no params"))?;
        let created = changes::create_schedule(&state, &who, settings, paused.unwrap_or(false)).await;
        created.map_err(|error| schedules::refused(error, &who))
    };
    let schedule = match made.await {
        Err(error) if redirect::is_form(&params) => {
            return Ok(ui::page(form::again(&state, &who, &params, None, Some(&error)).await));
        }
        made => made?,
    };
    // `{id}` in `.then` stands for the new schedule.
    let id = schedule.id.to_string();
    if let Some(Value::String(then)) = params.options.get_mut("then") {
        *then = then.replace("{id}", &id);
    }
    let told = json::value_of(&told(&state, &schedule).await?)?;
    redirect::answer(&params, json::made(StatusCode::CREATED, &format!("/schedules/{id}"), &told))
}

/// Changes a schedule. What is not given stays; null, or an empty field of a form, takes a field back to its default. Keys
/// of `options` are set one by one. With the option `.rev`, only if the schedule still has this revision.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    post, path = "/schedules/{id}", tag = "schedules", operation_id = "updateSchedule",
    request_body(content = ScheduleChange, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Changed.", body = Schedule),
        (status = 400, description = "A parameter is wrong, or there is no such queue."),
        (status = 404, description = "There is no such schedule."),
        (status = 409, description = "It has another revision (`rev`), and is not changed; or another schedule has the name."),
    ),
)]
pub async fn update(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    match change(&state, &who, &named, &params).await {
        // The form of a schedule is shown again, and nothing that was typed is lost.
        Err(error) if redirect::is_form(&params) && params.options.contains_key("schedule") => {
            let schedule = schedules::find(&state, &named).await.ok();
            Ok(ui::page(form::again(&state, &who, &params, schedule.as_ref(), Some(&error)).await))
        }
        changed => redirect::reply(&params, &told(&state, &changed?).await?),
    }
}

/// Deletes a schedule, with what its plugin has saved. The tasks that it has made stay.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    delete, path = "/schedules/{id}", tag = "schedules", operation_id = "deleteSchedule",
    responses(
        (status = 200, description = "Deleted.", body = ScheduleDeleted),
    ),
)]
pub async fn delete(state: Data<State>, who: Who, named: NamedSchedule) -> Answer {
    let schedule = schedules::find(&state, &named).await?;
    may_change_schedule(&who, &schedule, &state).await?;
    if !changes::delete_schedule(&state, &who, schedule.id).await? {
        return Err(no_such_schedule(&named.name));
    }
    let (id, name) = (schedule.id.to_string(), schedule.settings.name);
    json::of(&ScheduleDeleted { id, name, deleted: true })
}

/// Deletes a schedule, whose tasks stay, and leads to the list of schedules. HTML forms know no `DELETE`.
#[utoipa::path(
    post, path = "/ui/schedules/{id}/delete", tag = "service", operation_id = "deleteScheduleByForm",
    params(("id" = String, Path, description = "The schedule's id.", example = "6b0003bb686c8275d8014444")),
    responses(
        (status = 303, description = "Deleted; the list of schedules is next."),
        (status = 404, description = "There is no such schedule. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn delete_by_form(state: Data<State>, who: Who, named: NamedSchedule) -> Answer {
    redirect::lead(delete(state, who, named).await, "/schedules")
}

/// Has a schedule make no tasks by itself. Those that it has made go on, and it can be told to make one.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    post, path = "/schedules/{id}/pause", tag = "schedules", operation_id = "pauseSchedule",
    responses((status = 200, description = "It is paused.", body = Schedule)),
)]
pub async fn pause(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    redirect::reply(&params, &set_paused(&state, &who, &named, &params, true).await?)
}

/// Has a schedule make tasks by itself again. The times that have passed meanwhile are not made up for.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    post, path = "/schedules/{id}/resume", tag = "schedules", operation_id = "resumeSchedule",
    responses((status = 200, description = "It is not paused.", body = Schedule)),
)]
pub async fn resume(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    redirect::reply(&params, &set_paused(&state, &who, &named, &params, false).await?)
}

async fn told(state: &State, schedule: &Stored) -> Result<Schedule, HttpError> {
    let queue = state.store.find_queue(&Selector::Id(schedule.settings.queue.0)).await?;
    Ok(schedules::view(schedule, queue.as_ref()))
}

async fn set_paused(
    state: &State,
    who: &Who,
    named: &NamedSchedule,
    params: &Params,
    paused: bool,
) -> Result<Schedule, HttpError> {
    params.only(&[])?;
    let schedule = schedules::find(state, named).await?;
    may_change_schedule(who, &schedule, state).await?;
    if !changes::pause_schedule(state, who, schedule.id, paused).await? {
        return Err(no_such_schedule(&named.name));
    }
    told(state, &schedules::find(state, &named.found(schedule.id.0)).await?).await
}

async fn change(
    state: &State,
    who: &Who,
    named: &NamedSchedule,
    params: &Params,
) -> Result<Stored, HttpError> {
    let base = schedules::revision(params)?;
    let schedule = schedules::find(state, named).await?;
    let (id, by_id) = (schedule.id, named.found(schedule.id.0));
    let mut paused = None;
    for turn in 1..=TRIES {
        let schedule = schedules::find(state, &by_id).await?;
        match attempt(state, who, &schedule, params, base).await? {
            Attempt::Settled(wanted) => {
                paused = wanted;
                break;
            }
            Attempt::Gone => return Err(no_such_schedule(&named.name)),
            Attempt::Overtaken(rev) if base.is_some() || turn == TRIES => {
                return Err(schedules::changed_meanwhile(rev));
            }
            Attempt::Overtaken(_) => {} // It is made from what is there now.
        }
    }
    if let Some(paused) = paused
        && !changes::pause_schedule(state, who, id, paused).await?
    {
        return Err(no_such_schedule(&named.name));
    }
    schedules::find(state, &by_id).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// The settings are what they are to be. Whether the schedule is to be paused, or not, if that is said.
    Settled(Option<bool>),
    /// Somebody else has changed them since they were read: they have this revision.
    Overtaken(i64),
    Gone,
}

/// Stores the change that a request asks for, if the schedule still is what was read. Whoever asks is looked at for what was
/// read: it may be that of another queue than it was before.
async fn attempt(
    state: &State,
    who: &Who,
    schedule: &Stored,
    params: &Params,
    base: Option<i64>,
) -> Result<Attempt, HttpError> {
    may_change_schedule(who, schedule, state).await?;
    let (settings, paused) = schedules::settings(state, who, Some(schedule), params).await?;
    if settings.is_none() && paused.is_none() {
        return Err(HttpError::bad_request("no params"));
    }
    if base.is_some_and(|base| base != schedule.rev) {
        return Err(schedules::changed_meanwhile(schedule.rev));
    }
    let Some(settings) = settings.filter(|settings| *settings != schedule.settings) else {
        return Ok(Attempt::Settled(paused));
    };
    let updated = changes::update_schedule(state, who, (schedule.id, schedule.rev), settings).await;
    Ok(match updated.map_err(|error| schedules::refused(error, who))? {
        Updated::Updated(_) => Attempt::Settled(paused),
        Updated::NoSuchSchedule => Attempt::Gone,
        Updated::Changed { rev } => Attempt::Overtaken(rev),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bson::oid::ObjectId;
    use disbatch_core::accounts::{Grant, Rights, Role, Scope};
    use disbatch_core::clock::SystemClock;
    use disbatch_core::config::Config;
    use disbatch_core::model::QueueId;
    use disbatch_core::store::Store;
    use disbatch_mongod::testing::{self, TestDatabase};
    use serde_json::{Value, json};

    use super::*;
    use crate::access::Door;

    fn params(fields: Value) -> Params {
        Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
    }

    fn state(database: &TestDatabase) -> State {
        let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": [] });
        let config = Config::parse(&config.to_string(), Path::new("/c.json")).unwrap();
        let store = Store::with_clock(database.database.clone(), Arc::new(SystemClock));
        State::new(&config, store, Door::Open)
    }

    /// A schedule is moved to another queue between its read and its write: that is the case in which the next attempt is
    /// made, for what is there then.
    #[tokio::test]
    async fn who_has_lost_a_schedule_between_two_attempts_does_not_change_it() {
        let database = TestDatabase::create(testing::server().await.unwrap()).await.unwrap();
        let state = state(&database);
        let [mail, reports] = ["mail", "reports"].map(|name| (QueueId(ObjectId::new()), name));
        for (id, name) in [mail, reports] {
            state
                .store
                .insert_queue(bson::doc! { "_id": id, "name": name, "plugin": "My::Plugin" })
                .await
                .unwrap();
        }
        let anybody = || Who::anybody("10.0.0.1".to_owned());
        let grant = Grant { scope: Scope::Queue(mail.0), role: Role::Submitter };
        let rights = Rights::new(None, vec![grant]);
        let ann = Who { name: Some("ann".to_owned()), rights, ..anybody() };
        let wanted = params(json!({ "name": "nightly", "queue": "mail", "cron": "0 3 * * *" }));
        let (settings, _) = schedules::settings(&state, &ann, None, &wanted).await.unwrap();
        let read = changes::create_schedule(&state, &ann, settings.unwrap(), false).await.unwrap();
        let named = NamedSchedule::parse("nightly");
        let to_reports = params(json!({ "queue": "reports" }));
        let moved = change(&state, &anybody(), &named, &to_reports).await.unwrap();
        assert_eq!(moved.settings.queue, reports.0);

        let by_ann = params(json!({ "description": "by ann" }));
        let overtaken = attempt(&state, &ann, &read, &by_ann, None).await.unwrap();
        assert_eq!(overtaken, Attempt::Overtaken(moved.rev));
        let refused = attempt(&state, &ann, &moved, &by_ann, None).await.unwrap_err();
        assert_eq!(refused.status(), 404, "the queue is none that she knows of: {refused}");
        assert_eq!(change(&state, &ann, &named, &by_ann).await.unwrap_err().status(), 404);
        let stored = schedules::find(&state, &named).await.unwrap();
        assert_eq!((stored.settings.description.as_str(), stored.rev), ("", moved.rev));
        let done = attempt(&state, &anybody(), &moved, &by_ann, None).await.unwrap();
        assert_eq!(done, Attempt::Settled(None));
        database.drop_database().await.unwrap();
    }
}
