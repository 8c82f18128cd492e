//! `POST /tasks/:id/retry`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::doc;
use disbatch_core::model::{Selector, Status, TaskId, whole_number};
use disbatch_core::task::question::Awaiting;
use disbatch_core::task::{Retried, TaskOptions};
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, create_tasks, redirect, task_action};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite, Reason, RetryResult};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json};

/// Queues a task again that has ended. What came out of it is kept: see `GET /tasks/{id}/attempts`. A deferred task is queued at
/// once, before its time. Of an archived task a new one like it is made, whose id is in the answer.
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
            description = "It has not ended and is not deferred; its queue is gone or accepts no tasks, if it is archived; the inbox has refused it; or a task with the same unique key has not (`task` is its id).",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let answer = retry(&state, &who, &id, &params).await;
    redirect::or_page(redirect::is_form(&params), answer)
}

async fn retry(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let task_id = task_action::id(id)?;
    let reason = task_action::reason(params)?;
    let Some(task) = state.store.find_task(task_id).await? else {
        return like_archived(state, who, task_id, params).await;
    };
    let status = match changes::retry_task(state, who, &task, reason).await? {
        Retried::Queued => Status::Queued,
        Retried::Blocked => Status::Blocked,
        Retried::NotEnded(Status::Deferred) if Awaiting::of(&task).is_some() => {
            return Err(HttpError::conflict(
                "the task waits for an answer: it goes on with that, and not before",
            ));
        }
        other => return Err(refusal(id, other)),
    };
    // A task of Perl's has no number; what it did was its first attempt all the same.
    let before = if task.status == Status::Deferred { 0 } else { 1 };
    let attempt = task.attempt().unwrap_or(0).max(before) + 1;
    let result = json!({ "id": task_id.to_string(), "status": status.code(), "attempt": attempt });
    redirect::answer(params, json::ok(&result))
}

/// Makes a new task like an archived one, which stays where it is.
async fn like_archived(state: &State, who: &Who, id: TaskId, params: &Params) -> Answer {
    let task = state.store.find_archived(id).await?.ok_or_else(|| task_action::not_found(&id.to_string()))?;
    let queue = state.store.find_queue(&Selector::Id(task.queue.0)).await?;
    let queue = queue.ok_or_else(|| HttpError::conflict("the task is archived, and its queue is gone"))?;
    if !queue.is_accepting() {
        return Err(create_tasks::accepts_nothing(&queue));
    }
    let options = TaskOptions::of_task(&task);
    let options =
        options.map_err(|why| HttpError::conflict(format!("the task cannot be made anew: {why}")))?;
    create_tasks::steps::check(state, who, &queue, &options.steps).await?;
    create_tasks::files::check(who, options.files.as_ref(), options.tenant.as_deref())?;
    let own = task.params().as_document().cloned().unwrap_or_default();
    let new = create_tasks::submit(state, who, &queue, vec![own], (options, None)).await?;
    let new = new.first().copied().ok_or_else(|| HttpError::internal("no task was made"))?;
    let made = state.store.find_task_fields(new, doc! { "status": 1 }).await?;
    let status = made.as_ref().and_then(|task| task.get("status")).and_then(whole_number);
    let result = json!({
        "id": new.to_string(), "status": status, "attempt": 1, "retry_of": id.to_string(),
    });
    redirect::answer(params, json::ok(&result))
}

/// Why a task is not tried again.
pub fn refusal(id: &str, retried: Retried) -> HttpError {
    match retried {
        Retried::NotEnded(status) => task_action::wrong_state(status, "has not ended"),
        Retried::NotUnique(other) => not_unique(other),
        Retried::Refused => HttpError::conflict(Retried::WAS_REFUSED),
        Retried::NoSuchTask => task_action::not_found(id),
        Retried::Queued | Retried::Blocked => HttpError::internal("it is tried again"),
    }
}

/// Another task has its key: this one, unless it has ended since.
fn not_unique(other: Option<TaskId>) -> HttpError {
    let mut body = json!({ "error": Retried::NOT_UNIQUE });
    if let Some(other) = other {
        body["task"] = other.to_string().into();
    }
    HttpError::with_body(StatusCode::CONFLICT, body)
}
