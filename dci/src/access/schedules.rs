//! The schedule that an address names, and whose it is.

use actix_web::dev::ServiceRequest;
use actix_web::http::StatusCode;
use actix_web::web;
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, Selector};
use disbatch_core::schedules::Schedule;

use super::Who;
use crate::error::HttpError;
use crate::state::State;

/// The schedule that the address names, read from it as handlers read it.
pub(super) async fn named(request: &mut ServiceRequest, state: &State) -> Result<Schedule, HttpError> {
    let name = request.extract::<web::Path<String>>().await.map_err(|_| unknown(request))?;
    let schedule = state.store.find_schedule(&Selector::parse(&name)).await?;
    schedule.ok_or_else(|| unknown(request))
}

/// The queue of a schedule. Of a queue that was deleted there is left what rights look at: its id.
pub(super) async fn queue_of(schedule: &Schedule, state: &State) -> Result<Queue, HttpError> {
    let queue = schedule.settings.queue;
    let found = state.store.find_queue(&Selector::Id(queue.0)).await?;
    Ok(found.unwrap_or_else(|| Queue::without_document(queue)))
}

/// A schedule that one may not see is like one that there is not.
pub(super) fn hidden(request: &ServiceRequest, error: HttpError) -> HttpError {
    if error.status() == StatusCode::NOT_FOUND { unknown(request) } else { error }
}

fn unknown(request: &ServiceRequest) -> HttpError {
    no_such_schedule(request.match_info().get("id").unwrap_or_default())
}

/// There is no such schedule, or not for whoever asks.
pub fn no_such_schedule(name: &str) -> HttpError {
    HttpError::not_found(format!("no schedule '{name}'"))
}

/// Sees to it that somebody may change a schedule, pause it or delete it: who may submit tasks to its queue and has made it,
/// and operators of its queue.
pub async fn may_change_schedule(who: &Who, schedule: &Schedule, state: &State) -> Result<(), HttpError> {
    if who.is_everywhere(Role::Operator) {
        return Ok(());
    }
    let queue = queue_of(schedule, state).await?;
    if owns_schedule(who, schedule) {
        return who.check(Role::Submitter, &queue);
    }
    who.check(Role::Operator, &queue)
}

/// Whether somebody has made a schedule.
pub fn owns_schedule(who: &Who, schedule: &Schedule) -> bool {
    who.name.is_some() && who.name == schedule.settings.owner
}
