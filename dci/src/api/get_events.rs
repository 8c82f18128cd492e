//! `GET /tasks/:id/events`

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::web::{Data, Path};
use disbatch_core::model::TaskId;
use serde_json::Value;

use crate::api::Answer;
use crate::error::HttpError;
use crate::events::{self, Events, Resume};
use crate::openapi::{ErrorBody, OfRead};
use crate::params::Params;
use crate::state::State;

/// What happens to a task, as Server-Sent Events, each with JSON as its data:
///
/// `status` comes first and at every change: `status`, `word`, `attempt`, `ended`, `node`, `mtime`.
/// `progress` is what the plugin says: `percent`, `message`, `at`. `output` is what it writes: `attempt`,
/// `stream`, `offset` in bytes, `text`; bytes that are not UTF-8 are replaced, and a line stands for `missing`
/// bytes that are not kept. `end`, with the keys of `status`, is the last one.
///
/// When a task is tried again, the events go on with the next attempt. A client that comes back with
/// `Last-Event-ID`, or the same as the option `.resume`, gets the output from there on.
#[utoipa::path(
    get, path = "/tasks/{id}/events", tag = "tasks", operation_id = "getEvents",
    params(
        ("id" = String, Path, description = "The task's id."),
        (
            "Last-Event-ID" = Option<String>, Header, example = "attempt:1,stdout:123,stderr:0",
            description = "The id of the last `output` that the client has.",
        ),
        (
            ".resume" = Option<String>, Query, example = "attempt:1,stdout:123,stderr:0",
            description = "The same, for clients that cannot set the header, which goes before it.",
        ),
    ),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    id: Path<String>,
    params: Result<Params, HttpError>,
) -> Answer {
    let not_found = || HttpError::not_found(format!("no task with id {id}"));
    let task: TaskId = id.parse().map_err(|_| not_found())?;
    // Interest is registered before the first look, so that no change is missed.
    let waiter = state.watch.wait_for(task, &state.store);
    state.store.observe_task(task).await?.ok_or_else(not_found)?;
    let mut response = events::response();
    if request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let last = request.headers().get("Last-Event-ID").and_then(|id| id.to_str().ok());
    let params = params.unwrap_or_default();
    let asked = params.options.get("resume").and_then(Value::as_str);
    let resume = last.and_then(Resume::parse).or_else(|| asked.and_then(Resume::parse));
    Ok(response.streaming(Events::new(state, waiter, task, resume).stream()))
}
