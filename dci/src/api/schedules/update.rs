//! `POST /schedules/:id`

use actix_web::web::Data;
use disbatch_core::model::Selector;
use disbatch_core::schedules::{Schedule, Updated};

use super::get::told;
use crate::access::{NamedSchedule, Who, may_change_schedule, no_such_schedule};
use crate::api::{Answer, then};
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, OfWrite, ScheduleChange};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, schedules, ui};

/// How often a change is tried that others get in the way of, if it does not say from which revision it was made.
const TRIES: usize = 5;

/// Changes a schedule. What is not given stays; null, or an empty field of a form, takes a field back to its default. Keys
/// of `options` are set one by one. With the option `.rev`, only if the schedule still has this revision.
///
/// For operators of the queue, and for submitters who have made the schedule.
#[utoipa::path(
    post, path = "/schedules/{id}", tag = "schedules", operation_id = "updateSchedule",
    params((
        "id" = String, Path, example = "nightly",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    request_body(content(
        (ScheduleChange = "application/json"),
        (ScheduleChange = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Changed.", body = openapi::Schedule),
        (status = 400, description = "A parameter is wrong, or there is no such queue.", body = ErrorBody),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "It has another revision (`rev`), and is not changed; or another schedule has the name.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedSchedule, params: Params) -> Answer {
    match update(&state, &who, &named, &params).await {
        Ok(schedule) => {
            let changed = json::ok(&told(&state, &schedule).await?);
            then::or_page(then::is_form(&params), then::answer(&params, changed))
        }
        // The form of a schedule is shown again, and nothing that was typed is lost.
        Err(error) if then::is_form(&params) && params.options.contains_key("schedule") => {
            let schedule = schedules::find(&state, &named).await.ok();
            let form = ui::schedules::form::again(&state, &who, &params, schedule.as_ref(), Some(&error));
            Ok(ui::page(form.await))
        }
        Err(error) => then::or_page(then::is_form(&params), Err(error)),
    }
}

async fn update(
    state: &State,
    who: &Who,
    named: &NamedSchedule,
    params: &Params,
) -> Result<Schedule, HttpError> {
    let base = schedules::revision(params)?;
    let id = schedules::find(state, named).await?.id;
    // Its name may be another one from now on.
    let by_id = NamedSchedule { name: named.name.clone(), selector: Selector::Id(id.0) };
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

/// What became of an attempt to store a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// The settings are what they are to be. Whether the schedule is to be paused, or not, if that is said.
    Settled(Option<bool>),
    /// Somebody else has changed them since they were read: they have this revision.
    Overtaken(i64),
    /// There is no such schedule any more.
    Gone,
}

/// Stores the change that a request asks for, if the schedule still is what was read. Whoever asks is looked at for what was
/// read: it may be that of another queue than it was before.
async fn attempt(
    state: &State,
    who: &Who,
    schedule: &Schedule,
    params: &Params,
    base: Option<i64>,
) -> Result<Attempt, HttpError> {
    may_change_schedule(who, schedule, state).await?;
    let (settings, paused) = schedules::changed_settings(state, who, schedule, params).await?;
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

    /// The state of a server with this database.
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
            state.store.create_queue(id, name.into(), "My::Plugin".into()).await.unwrap();
        }
        let anybody = || Who::anybody("10.0.0.1".to_owned());
        let grant = Grant { scope: Scope::Queue(mail.0), role: Role::Submitter };
        let rights = Rights::new(None, vec![grant]);
        let ann = Who { name: Some("ann".to_owned()), rights, ..anybody() };
        let wanted = params(json!({ "name": "nightly", "queue": "mail", "cron": "0 3 * * *" }));
        let (settings, paused) = schedules::new_settings(&state, &ann, &wanted).await.unwrap();
        let read = changes::create_schedule(&state, &ann, settings, paused).await.unwrap();
        let named = NamedSchedule::parse("nightly");
        let to_reports = params(json!({ "queue": "reports" }));
        let moved = update(&state, &anybody(), &named, &to_reports).await.unwrap();
        assert_eq!(moved.settings.queue, reports.0);

        let change = params(json!({ "description": "by ann" }));
        let overtaken = attempt(&state, &ann, &read, &change, None).await.unwrap();
        assert_eq!(overtaken, Attempt::Overtaken(moved.rev));
        let refused = attempt(&state, &ann, &moved, &change, None).await.unwrap_err();
        assert_eq!(refused.status(), 404, "the queue is none that she knows of: {refused}");
        assert_eq!(update(&state, &ann, &named, &change).await.unwrap_err().status(), 404);
        let stored = schedules::find(&state, &named).await.unwrap();
        assert_eq!((stored.settings.description.as_str(), stored.rev), ("", moved.rev));
        let done = attempt(&state, &anybody(), &moved, &change, None).await.unwrap();
        assert_eq!(done, Attempt::Settled(None));
        database.drop_database().await.unwrap();
    }
}
