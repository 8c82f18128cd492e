//! `POST /tasks/:id/cancel`

use actix_web::web::{Data, Path};
use disbatch_core::model::Status;
use disbatch_core::task::Cancelled;
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, redirect, task_action};
use crate::openapi::{CancelResult, ErrorBody, OfWrite, Reason};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json};

/// Cancels a task. One that has not started never will; one that runs is asked to end, with SIGTERM, and after its
/// grace with SIGKILL. One that a web service works on ends, and the service is told so when it calls back.
#[utoipa::path(
    post, path = "/tasks/{id}/cancel", tag = "tasks", operation_id = "cancelTask",
    params(("id" = String, Path, description = "Its id.")),
    request_body(content((Reason = "application/json"), (Reason = "application/x-www-form-urlencoded"))),
    responses(
        (status = 200, description = "Cancelled, or asked to end.", body = CancelResult),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        (status = 409, description = "It has ended.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let answer = cancel(&state, &who, &id, &params).await;
    redirect::or_page(redirect::is_form(&params), answer)
}

async fn cancel(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let task = task_action::id(id)?;
    let reason = task_action::reason(params)?;
    let (status, outcome) = match changes::cancel_task(state, who, task, reason).await? {
        Cancelled::Cancelled => (Status::Cancelled, "cancelled"),
        Cancelled::Requested => (Status::Running, "requested"),
        Cancelled::Terminated => (Status::Terminated, "terminated"),
        Cancelled::Ended(status) => return Err(task_action::wrong_state(status, "has ended")),
        Cancelled::NoSuchTask => return Err(task_action::not_found(id)),
    };
    let result = json!({ "id": task.to_string(), "status": status.code(), "outcome": outcome });
    redirect::answer(params, json::ok(&result))
}
