//! The queue or schedule that an address names, and whose it is.

use std::pin::Pin;

use actix_web::dev::{self, ServiceRequest};
use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, QueueId, ScheduleId, Selector};
use disbatch_core::schedules::Schedule;

use super::Who;
use crate::error::HttpError;
use crate::state::State;

/// The queue that somebody was let through for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted(pub QueueId);

/// The queue that an address names. For those who may not use all queues, it is the one that was looked at when they were
/// let through, whatever has that name by now.
#[derive(Debug, Clone)]
pub struct NamedQueue {
    /// As it stands in the address.
    pub name: String,
    /// By which it is found.
    pub selector: Selector,
}

impl NamedQueue {
    /// The queue with this name or id.
    pub fn parse(name: &str) -> Self {
        Self { name: name.to_owned(), selector: Selector::parse(name) }
    }
}

impl FromRequest for NamedQueue {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let name = web::Path::<String>::from_request(request, payload);
        let admitted = request.extensions().get::<Admitted>().copied();
        Box::pin(async move {
            let name = name.await.map_err(|_| HttpError::bad_request("the address cannot be read"))?;
            let name = name.into_inner();
            let selector = admitted.map_or_else(|| Selector::parse(&name), |queue| Selector::Id(queue.0.0));
            Ok(Self { name, selector })
        })
    }
}

/// The schedule that somebody was let through for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdmittedSchedule(pub ScheduleId);

/// The schedule that an address names, as [`NamedQueue`] is the queue.
#[derive(Debug, Clone)]
pub struct NamedSchedule {
    /// As it stands in the address.
    pub name: String,
    /// By which it is found.
    pub selector: Selector,
}

impl NamedSchedule {
    /// The schedule with this name or id.
    pub fn parse(name: &str) -> Self {
        Self { name: name.to_owned(), selector: Selector::parse(name) }
    }
}

impl FromRequest for NamedSchedule {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, HttpError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let name = web::Path::<String>::from_request(request, payload);
        let admitted = request.extensions().get::<AdmittedSchedule>().copied();
        Box::pin(async move {
            let name = name.await.map_err(|_| HttpError::bad_request("the address cannot be read"))?;
            let name = name.into_inner();
            let selector = match admitted {
                Some(AdmittedSchedule(id)) => Selector::Id(id.0),
                None => Selector::parse(&name),
            };
            Ok(Self { name, selector })
        })
    }
}

/// The schedule that the address names, read from it as handlers read it.
pub(super) async fn named_schedule(
    request: &mut ServiceRequest,
    state: &State,
) -> Result<Schedule, HttpError> {
    let name = request.extract::<web::Path<String>>().await.map_err(|_| unknown_schedule(request))?;
    let schedule = state.store.find_schedule(&Selector::parse(&name)).await?;
    schedule.ok_or_else(|| unknown_schedule(request))
}

/// The queue of a schedule. Of a queue that was deleted there is left what rights look at: its id.
pub(super) async fn queue_of_schedule(schedule: &Schedule, state: &State) -> Result<Queue, HttpError> {
    let queue = schedule.settings.queue;
    let found = state.store.find_queue(&Selector::Id(queue.0)).await?;
    Ok(found.unwrap_or_else(|| Queue::without_document(queue)))
}

/// A schedule that one may not see is like one that there is not.
pub(super) fn hidden_schedule(request: &ServiceRequest, error: HttpError) -> HttpError {
    if error.status() == StatusCode::NOT_FOUND { unknown_schedule(request) } else { error }
}

fn unknown_schedule(request: &ServiceRequest) -> HttpError {
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
    let queue = queue_of_schedule(schedule, state).await?;
    if owns_schedule(who, schedule) {
        return who.check(Role::Submitter, &queue);
    }
    who.check(Role::Operator, &queue)
}

/// Whether somebody has made a schedule.
pub fn owns_schedule(who: &Who, schedule: &Schedule) -> bool {
    who.name.is_some() && who.name == schedule.settings.owner
}
