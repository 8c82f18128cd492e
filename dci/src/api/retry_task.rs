//! `POST /tasks/:id/retry`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::Bson;
use disbatch_core::model::{Status, Task};
use disbatch_core::store::StoreError;
use disbatch_core::task::Retried;
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, task_action, then};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite, Reason, RetryResult};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json};

/// Queues a task again that has ended. What came out of it is kept: see `GET /tasks/{id}/attempts`.
///
/// # Errors
/// There is no such task, it has not ended, another one has its unique key, the reason is no text, or the database
/// cannot be reached.
#[utoipa::path(
    post, path = "/tasks/{id}/retry", tag = "tasks", operation_id = "retryTask",
    params(("id" = String, Path, description = "Its id.")),
    request_body(content((Reason = "application/json"), (Reason = "application/x-www-form-urlencoded"))),
    responses(
        (status = 200, description = "Queued again.", body = RetryResult),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "It has not ended, or a task with the same unique key has not (`task` is its id).",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let answer = retry(&state, &who, &id, &params).await;
    then::or_page(then::is_form(&params), answer)
}

async fn retry(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let task_id = task_action::id(id)?;
    let reason = task_action::reason(params)?;
    let task = state.store.find_task(task_id).await?.ok_or_else(|| task_action::not_found(id))?;
    let status = match changes::retry_task(state, who, &task, reason).await {
        Ok(Retried::Queued) => Status::Queued,
        Ok(Retried::Blocked) => Status::Blocked,
        Ok(Retried::NotEnded(status)) => return Err(task_action::wrong_state(status, "has not ended")),
        Ok(Retried::NoSuchTask) => return Err(task_action::not_found(id)),
        Err(error) => return Err(refused(state, &task, error).await?),
    };
    // A task of Perl's has no number; what it did was its first attempt all the same.
    let attempt = task.attempt().unwrap_or(0).max(1) + 1;
    let result = json!({ "id": task_id.to_string(), "status": status.code(), "attempt": attempt });
    then::answer(params, json::ok(&result))
}

/// What is wrong, where another task has the key.
async fn refused(state: &State, task: &Task, error: StoreError) -> Result<HttpError, StoreError> {
    let is_taken = error.write_failure().is_some_and(|failure| failure.is_duplicate_key());
    let Some(unique) = task.rest.get("unique").and_then(Bson::as_str).filter(|_| is_taken) else {
        return Ok(error.into());
    };
    let mut body = json!({ "error": "a task of the queue with the same unique key has not ended" });
    if let Some(holder) = state.store.find_unique(task.queue, unique).await? {
        body["task"] = holder.to_string().into();
    }
    Ok(HttpError::with_body(StatusCode::CONFLICT, body))
}
