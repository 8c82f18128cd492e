//! Stands before every handler.

use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::{self, Data};
use actix_web::{HttpMessage, HttpRequest};
use bson::oid::ObjectId;
use disbatch_core::accounts::Role;
use disbatch_core::admission::Rule;
use disbatch_core::bulk::BulkJob;
use disbatch_core::model::{Queue, QueueId, Selector, TaskId};
use tokio::time::timeout;

use super::target::{Admitted, AdmittedSchedule};
use super::viewer::Viewer;
use super::who::no_such_queue;
use super::{Need, Via, Who, form, identify, refusal, schedules, streams};
use crate::error::HttpError;
use crate::options;
use crate::state::State;
use crate::ui::zone;
use crate::{accept, allowance, connections, measure};

/// So long a page waits for what it says of all new tasks.
const PATIENCE: Duration = Duration::from_millis(500);

/// Lets through who may, and refuses all others.
pub async fn enforce(
    need: Need,
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let Some(state) = request.app_data::<Data<State>>().cloned() else {
        let error = HttpError::internal("the server has no state");
        return Ok(request.into_response(refusal_of_nobody(error)));
    };
    if matches!(need, Need::Nothing | Need::Token) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let who = match identify::identify(request.request(), &state).await {
        Ok(Some(who)) => who,
        Ok(None) => {
            let has_shown = identify::has_shown(request.request());
            measure::not_let_in(state.store.metrics(), StatusCode::UNAUTHORIZED, has_shown);
            let response = refusal::unknown(request.request());
            return Ok(request.into_response(response));
        }
        Err(error) => {
            measure::not_let_in(state.store.metrics(), error.status(), true);
            let response = refusal::error(request.request(), error);
            return Ok(request.into_response(response));
        }
    };
    allowance::known();
    connections::known(request.request());
    let viewer = Viewer::of(&who).told(closed(request.request(), &state).await);
    if let Err(error) = admit(need, &who, &mut request, &state).await {
        measure::not_let_in(state.store.metrics(), error.status(), true);
        let response = viewer.look(async { refusal::error(request.request(), error) }).await;
        return Ok(request.into_response(response));
    }
    let who = who.within_trace(request.headers());
    request.extensions_mut().insert(who.clone());
    let zone = zone::of(request.request());
    let response = viewer.look(zone::within(zone, next.call(request))).await?.map_into_boxed_body();
    let mut response = streams::limit(response, &who, &state);
    options::tell(&mut response);
    if who.via != Via::OpenDoor {
        // What one may see is not for the next who uses the same browser or proxy.
        let headers = response.headers_mut();
        if !headers.contains_key(CACHE_CONTROL) {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }
    Ok(response)
}

/// The rule for all new tasks, for pages.
async fn closed(request: &HttpRequest, state: &State) -> Option<Rule> {
    if request.method() != Method::GET || !accept::wants_html(request) {
        return None;
    }
    // What is wrong with the database the page itself says.
    timeout(PATIENCE, state.store.rule_for_all()).await.ok()?.ok().flatten()
}

fn refusal_of_nobody(error: HttpError) -> actix_web::HttpResponse {
    actix_web::ResponseError::error_response(&error)
}

async fn admit(need: Need, who: &Who, request: &mut ServiceRequest, state: &State) -> Result<(), HttpError> {
    if let Via::Session(key) = &who.via {
        form::check(request, key).await?;
    }
    let enough = |own: Option<Role>, role: Role| {
        if own >= Some(role) { Ok(()) } else { Err(HttpError::lacking(role)) }
    };
    match need {
        Need::Nothing | Need::Token | Need::Login => {}
        Need::Everywhere(role) => enough(who.rights.everywhere(), role)?,
        Need::Somewhere(role) => enough(who.rights.somewhere(), role)?,
        Need::Queue(role) if !who.is_everywhere(role) => {
            enough(who.rights.somewhere(), Role::Viewer)?;
            let queue = named_queue(request, state).await?;
            who.check(role, &queue)?;
            // What was looked at is what is used: a name may stand for another queue in a moment.
            request.extensions_mut().insert(Admitted(queue.id));
        }
        Need::Task(role) if !who.is_everywhere(role) => {
            enough(who.rights.somewhere(), Role::Viewer)?;
            let (queue, tenant) = queue_of_task(request, state).await?;
            who.check_task(role, &queue, tenant.as_deref()).map_err(|error| hidden(request, error))?;
        }
        Need::Bulk(role) if !who.is_everywhere(role) => {
            enough(who.rights.somewhere(), Role::Viewer)?;
            let job = named_job(request, state).await?;
            let queue = job.filter.get_object_id("queue").ok().map(QueueId);
            may_bulk(who, role, queue, state).await?;
        }
        Need::Schedule(role) if !who.is_everywhere(role) => {
            enough(who.rights.somewhere(), Role::Viewer)?;
            let schedule = schedules::named(request, state).await?;
            let queue = schedules::queue_of(&schedule, state).await?;
            who.check(role, &queue).map_err(|error| schedules::hidden(request, error))?;
            // As for queues: a name may stand for another schedule in a moment.
            request.extensions_mut().insert(AdmittedSchedule(schedule.id));
        }
        Need::Array(role) if !who.is_everywhere(role) => {
            enough(who.rights.somewhere(), Role::Viewer)?;
            let id = request.match_info().get("id").unwrap_or_default().to_owned();
            let array = crate::arrays::find(state, &id).await?;
            let queue = state.store.find_queue(&Selector::Id(array.queue.0)).await?;
            let queue = queue.unwrap_or_else(|| Queue::without_document(array.queue));
            // One that they may not see is like one that there is not.
            let hide = |error: HttpError| match error.status() {
                StatusCode::NOT_FOUND => crate::arrays::not_found(&id),
                _ => error,
            };
            who.check(role, &queue).map_err(hide)?;
        }
        Need::Queue(_) | Need::Task(_) | Need::Bulk(_) | Need::Schedule(_) | Need::Array(_) => {}
    }
    Ok(())
}

/// The queue that the address names, read from it as handlers read it.
async fn named_queue(request: &mut ServiceRequest, state: &State) -> Result<Queue, HttpError> {
    let name = request.extract::<web::Path<String>>().await.map_err(|_| no_such_queue())?;
    let queue = state.store.find_queue(&Selector::parse(&name)).await?;
    queue.ok_or_else(no_such_queue)
}

/// The bulk job that the address names.
async fn named_job(request: &ServiceRequest, state: &State) -> Result<BulkJob, HttpError> {
    let id = request.match_info().get("id").unwrap_or_default();
    let not_found = || crate::bulk::not_found(id);
    let job = state.store.find_bulk(ObjectId::parse_str(id).map_err(|_| not_found())?).await?;
    job.ok_or_else(not_found)
}

/// The queue of the task that the address names, and whom the task is for. Of a queue that was deleted there is left what rights look at: its id. A
/// task of no queue is for those who may do anything.
async fn queue_of_task(
    request: &ServiceRequest,
    state: &State,
) -> Result<(Queue, Option<String>), HttpError> {
    let id = request.match_info().get("id").and_then(|id| id.parse::<TaskId>().ok());
    let id = id.ok_or_else(|| not_found(request))?;
    let (queue, tenant) = state.store.queue_of_task(id).await?.ok_or_else(|| not_found(request))?;
    let found = state.store.find_queue(&Selector::Id(queue.0)).await?;
    Ok((found.unwrap_or_else(|| Queue::without_document(queue)), tenant))
}

/// Sees to it that somebody has this role on the queue that a bulk job is about, or on all if it is about several.
pub async fn may_bulk(who: &Who, role: Role, queue: Option<QueueId>, state: &State) -> Result<(), HttpError> {
    if who.is_everywhere(role) {
        return Ok(());
    }
    let Some(queue) = queue else {
        return Err(HttpError::forbidden(format!(
            "this needs the role {role} on all queues; on one queue, name it in the filter"
        )));
    };
    let found = state.store.find_queue(&Selector::Id(queue.0)).await?;
    who.check(role, &found.unwrap_or_else(|| Queue::without_document(queue)))
}

/// A task that one may not see is like one that there is not.
fn hidden(request: &ServiceRequest, error: HttpError) -> HttpError {
    if error.status() == StatusCode::NOT_FOUND { not_found(request) } else { error }
}

fn not_found(request: &ServiceRequest) -> HttpError {
    crate::api::task_action::not_found(request.match_info().get("id").unwrap_or_default())
}
