//! Stands before every handler: what its route needs, and what those get who may not. Answers that go on and on end when whoever
//! reads them may not any more.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{ACCEPT, CACHE_CONTROL, COOKIE, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, ResponseError};
use disbatch_core::accounts::{Role, UserName};
use disbatch_core::admission::Rule;
use disbatch_core::model::{QueueId, Selector};
use disbatch_core::store::StoreError;
use futures::{FutureExt, stream};
use tokio::time::timeout;

use super::viewer::Viewer;
use super::{
    NamedQueue, NamedSchedule, Via, Who, has_shown, identify, no_such_queue, no_such_schedule, session,
};
use crate::api::task_actions;
use crate::error::HttpError;
use crate::state::State;
use crate::ui::zone;
use crate::{accept, allowance, arrays, bulk, measure, options, ui};

/// So long a page waits for what it says of all new tasks.
const PATIENCE: Duration = Duration::from_millis(500);

pub async fn enforce(
    need: Need,
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let Some(state) = request.app_data::<Data<State>>().cloned() else {
        let error = HttpError::internal("the server has no state");
        return Ok(request.into_response(error.error_response()));
    };
    if matches!(need, Need::Nothing | Need::Token) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let who = match identify(request.request(), &state).await {
        Ok(Some(who)) => who,
        Ok(None) => {
            let has_shown = has_shown(request.request());
            measure::not_let_in(state.store.metrics(), StatusCode::UNAUTHORIZED, has_shown);
            let response = refuse_unknown(request.request());
            return Ok(request.into_response(response));
        }
        Err(error) => {
            measure::not_let_in(state.store.metrics(), error.status(), true);
            let response = refuse(request.request(), error);
            return Ok(request.into_response(response));
        }
    };
    allowance::known();
    let viewer = Viewer { closed: closed(request.request(), &state).await, ..Viewer::of(&who) };
    if let Err(error) = admit(need, &who, &mut request, &state).await {
        measure::not_let_in(state.store.metrics(), error.status(), true);
        let response = viewer.look(async { refuse(request.request(), error) }).await;
        return Ok(request.into_response(response));
    }
    let who = who.within_trace(request.headers());
    request.extensions_mut().insert(who.clone());
    let zone = zone::of(request.request());
    let response = viewer.look(zone::within(zone, next.call(request))).await?.map_into_boxed_body();
    let mut response = limit_stream(response, &who, &state);
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

async fn admit(need: Need, who: &Who, request: &mut ServiceRequest, state: &State) -> Result<(), HttpError> {
    if let Via::Session(key) = &who.via {
        session::check_form(request, key).await?;
    }
    let enough = |own: Option<Role>, role: Role| {
        if own >= Some(role) { Ok(()) } else { Err(HttpError::lacking(role)) }
    };
    let role = match need {
        Need::Nothing | Need::Token | Need::Login => return Ok(()),
        Need::Everywhere(role) => return enough(who.rights.everywhere(), role),
        Need::Somewhere(role) => return enough(who.rights.somewhere(), role),
        Need::Queue(role)
        | Need::Task(role)
        | Need::Bulk(role)
        | Need::Schedule(role)
        | Need::Array(role) => role,
    };
    if who.is_everywhere(role) {
        return Ok(());
    }
    enough(who.rights.somewhere(), Role::Viewer)?;
    let id = request.match_info().get("id").unwrap_or_default().to_owned();
    match need {
        Need::Nothing | Need::Token | Need::Login | Need::Everywhere(_) | Need::Somewhere(_) => {}
        Need::Queue(_) => {
            let named = request.extract::<NamedQueue>().await.map_err(|_| no_such_queue())?;
            let queue = state.store.find_queue(&named.selector).await?.ok_or_else(no_such_queue)?;
            who.check(role, &queue)?;
            // What was looked at is what is used.
            request.extensions_mut().insert(named.found(queue.id.0));
        }
        // A task of no queue is for those who may do anything.
        Need::Task(_) => {
            let unknown = || task_actions::not_found(&id);
            let task = task_actions::task_id(&id)?;
            let (queue, tenant) = state.store.queue_of_task(task).await?.ok_or_else(unknown)?;
            let queue = state.queue_by_id(queue).await?;
            who.check_task(role, &queue, tenant.as_deref()).map_err(|error| error.hidden_as(unknown))?;
        }
        Need::Bulk(_) => {
            let job = state.store.find_bulk(bulk::id_of(&id)?).await?.ok_or_else(|| bulk::not_found(&id))?;
            may_bulk(who, role, job.filter.get_object_id("queue").ok().map(QueueId), state).await?;
        }
        Need::Schedule(_) => {
            let unknown = || no_such_schedule(&id);
            let named = request.extract::<NamedSchedule>().await.map_err(|_| unknown())?;
            let schedule = state.store.find_schedule(&named.selector).await?.ok_or_else(unknown)?;
            let queue = state.queue_by_id(schedule.settings.queue).await?;
            who.check(role, &queue).map_err(|error| error.hidden_as(unknown))?;
            request.extensions_mut().insert(named.found(schedule.id.0));
        }
        Need::Array(_) => {
            let queue = state.queue_by_id(arrays::find(state, &id).await?.queue).await?;
            who.check(role, &queue).map_err(|error| error.hidden_as(|| arrays::not_found(&id)))?;
        }
    }
    Ok(())
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
    who.check(role, &state.queue_by_id(queue).await?)
}

/// What somebody must be to use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: whoever reaches the server.
    Nothing,
    /// The token of the task that the address names as `id`, which its web service has, or who may answer it by a link. The handler asks for it.
    Token,
    /// To be known, with whatever role.
    Login,
    /// This role, not only on some queues.
    Everywhere(Role),
    /// This role on some queue. The handler limits what it does to [`super::Who::reach`].
    Somewhere(Role),
    /// This role on the queue that the address names as `queue`, or as `id`.
    Queue(Role),
    /// This role on the queue of the task that the address names as `id`.
    Task(Role),
    /// This role on all queues of the bulk job that the address names as `id`.
    Bulk(Role),
    /// This role on the queue of the schedule that the address names as `id`.
    Schedule(Role),
    /// This role on the queue of the array that the address names as `id`.
    Array(Role),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Token => f.write_str("token of the task"),
            Self::Login => f.write_str("login"),
            Self::Everywhere(role) => write!(f, "{role}"),
            Self::Somewhere(role) => write!(f, "{role} on some queue"),
            Self::Queue(role) => write!(f, "{role} on the queue"),
            Self::Task(role) => write!(f, "{role} on the task's queue"),
            Self::Bulk(role) => write!(f, "{role} on the job's queue"),
            Self::Schedule(role) => write!(f, "{role} on the schedule's queue"),
            Self::Array(role) => write!(f, "{role} on the array's queue"),
        }
    }
}

/// What clients are asked for, as Disbatch's have it.
const CHALLENGE: &str = "Basic realm=\"disbatch\", charset=\"UTF-8\"";

/// For somebody who is not known: the page to log in for a browser, 401 for all others.
pub fn refuse_unknown(request: &HttpRequest) -> HttpResponse {
    if accept::wants_html(request) {
        if *request.method() == Method::GET {
            let way = format!("/login?then={}", ui::names::encoded(here(request)));
            return HttpResponse::SeeOther().insert_header((LOCATION, way)).finish();
        }
        return ui::page(Err(HttpError::unauthorized(
            "you are not logged in any more: log in and try again",
        )));
    }
    let error = HttpError::unauthorized("this needs a login");
    let mut response = error.response();
    if !is_page(request) {
        response.insert_header((WWW_AUTHENTICATE, CHALLENGE));
    }
    response.content_type(crate::json::CONTENT_TYPE).body(error.json())
}

/// For somebody who may not, or whom something else has gone wrong with.
pub fn refuse(request: &HttpRequest, error: HttpError) -> HttpResponse {
    if accept::wants_html(request) {
        let is_read = *request.method() == Method::GET;
        let what = if is_read { "see this page" } else { "do this" };
        let needs = error.needs();
        let error = needs.map_or(error, |role| HttpError::forbidden(format!("Only {role}s can {what}.")));
        return if is_read { ui::page(Err(error)) } else { ui::failed(&error) };
    }
    error.error_response()
}

fn here(request: &HttpRequest) -> &str {
    request.uri().path_and_query().map_or("/", |address| address.as_str())
}

/// Whether a script of a page asks. The browser would ask for a password by itself, in a window of its own.
fn is_page(request: &HttpRequest) -> bool {
    let has = |name: &str| request.headers().contains_key(name);
    let streams = request.headers().get(ACCEPT).is_some_and(|accept| accept == "text/event-stream");
    streams || has(COOKIE.as_str()) || has("sec-fetch-mode") || has("hx-request")
}

/// How often it is asked.
const LOOK: Duration = Duration::from_secs(30);

/// The answer, which is cut off when whoever reads it has lost a right, or the session or token has ended. One whose length is known comes to its end.
pub fn limit_stream(
    response: ServiceResponse<BoxBody>,
    who: &Who,
    state: &State,
) -> ServiceResponse<BoxBody> {
    if response.response().body().size() != BodySize::Stream {
        return response;
    }
    let mut over = Box::pin(is_over(who.clone(), state.clone()).fuse());
    response.map_body(|_, mut body| {
        let chunks = stream::poll_fn(move |context| match over.as_mut().poll(context) {
            // The connection breaks: an end would say that this is all.
            Poll::Ready(()) => Poll::Ready(Some(Err("who reads this may not any more".into()))),
            Poll::Pending => Pin::new(&mut body).poll_next(context),
        });
        BoxBody::new(BodyStream::new(chunks))
    })
}

/// Waits until they may not read any more.
async fn is_over(who: Who, state: State) {
    let mut seen = BTreeSet::new();
    loop {
        // The rights stay as they are when a queue goes to another tenant.
        if let Ok(now) = queues_seen(&who, &state).await {
            let mut is_known = true;
            for lost in seen.difference(&now) {
                // One that was deleted takes nothing away from whoever follows another.
                match state.store.find_queue(&Selector::Id(lost.0)).await {
                    Ok(Some(_)) => return,
                    found => is_known &= found.is_ok(),
                }
            }
            if is_known {
                seen = now;
            }
        }
        tokio::time::sleep(LOOK).await;
        // Not to know is no reason to end anything: without a database there is nothing to be read either.
        if matches!(may_still(&who, &state).await, Ok(false)) {
            return;
        }
    }
}

/// The queues that they see; none, if these are all there are and will be.
async fn queues_seen(who: &Who, state: &State) -> Result<BTreeSet<QueueId>, StoreError> {
    if who.is_everywhere(Role::Viewer) {
        return Ok(BTreeSet::new());
    }
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    Ok(queues.into_iter().map(|queue| queue.id).collect())
}

/// Whether they are still let in, with the same rights. Whoever has others asks again, and is let through or not.
async fn may_still(who: &Who, state: &State) -> Result<bool, StoreError> {
    let store = &state.store;
    let name = || who.name.as_deref().and_then(|name| name.parse::<UserName>().ok());
    let user = match (&who.via, name()) {
        (Via::OpenDoor, _) => return state.access.is_open(store, false).await,
        (Via::Session(key), _) if !store.is_session_alive(key).await? => None,
        (Via::Token { text, .. }, _) => store.token_bearer(text, &who.from).await?.map(|bearer| bearer.user),
        (_, Some(name)) => store.find_user(&name).await?,
        (_, None) => None,
    };
    Ok(user.is_some_and(|user| user.rights == who.rights))
}
