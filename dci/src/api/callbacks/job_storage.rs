//! `POST /callbacks/:id/job_storage`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path, Payload};
use disbatch_core::budget;
use disbatch_core::callbacks::MOST_AT_ONCE;

use super::{answer, caller_of_running, json_of, within};
use crate::api::Answer;
use crate::openapi::{CallbackDone, OfCallback};
use crate::params::read_up_to;
use crate::state::State;
use crate::{changes, json};

/// Keeps any JSON of at most 1 MiB for the next run of the task's schedule, or for the next attempt, in place of what was
/// kept before.
#[utoipa::path(
    post, path = "/callbacks/{id}/job_storage", tag = "callbacks", operation_id = "storageOfService",
    params(("id" = String, Path, description = "The task's id.")),
    request_body(content = Value, content_type = "application/json"),
    responses((status = 200, description = "It is kept.", body = CallbackDone), OfCallback),
)]
pub async fn handle(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    let caller = caller_of_running(&state, &request, &id).await?;
    let storage = json_of(&read_up_to(body, MOST_AT_ONCE).await?)?;
    let storage = within("the storage", json::to_bson(&storage), budget::STORAGE)?;
    let heard = changes::storage_of_service(&state, caller.clone(), storage).await?;
    answer(heard, &caller, "stored")
}

/// The same as `POST`, for services that can do nothing else.
#[utoipa::path(
    put, path = "/callbacks/{id}/job_storage", tag = "callbacks", operation_id = "putStorageOfService",
    params(("id" = String, Path, description = "The task's id.")),
    request_body(content = Value, content_type = "application/json"),
    responses((status = 200, description = "It is kept.", body = CallbackDone), OfCallback),
)]
pub async fn put(state: Data<State>, request: HttpRequest, id: Path<String>, body: Payload) -> Answer {
    handle(state, request, id, body).await
}
