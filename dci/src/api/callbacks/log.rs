//! `POST /callbacks/:id/log`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path, Payload};
use disbatch_core::callbacks::MOST_AT_ONCE;

use super::{answer, caller_of_running};
use crate::api::Answer;
use crate::changes;
use crate::openapi::{CallbackDone, OfCallback};
use crate::params::read_up_to;
use crate::state::State;

/// Adds the body to the standard output of a task that a web service works on, byte by byte: at most 1 MiB with a call, and
/// 256 MiB in all, in a million calls. An empty body only tells that the service is still at work.
#[utoipa::path(
    post, path = "/callbacks/{id}/log", tag = "callbacks", operation_id = "logOfService",
    params(("id" = String, Path, description = "The task's id.")),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "It was added.", body = CallbackDone), OfCallback),
)]
pub async fn handle(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    let caller = caller_of_running(&state, &request, &id).await?;
    let bytes = read_up_to(body, MOST_AT_ONCE).await?;
    let heard = changes::log_of_service(&state, caller.clone(), bytes.to_vec()).await?;
    answer(heard, &caller, "logged")
}

/// The same as `POST`, for services that can do nothing else.
#[utoipa::path(
    put, path = "/callbacks/{id}/log", tag = "callbacks", operation_id = "putLogOfService",
    params(("id" = String, Path, description = "The task's id.")),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "It was added.", body = CallbackDone), OfCallback),
)]
pub async fn put(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    handle(state, request, id, body).await
}
