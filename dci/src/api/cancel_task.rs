//! `POST /tasks/:id/cancel`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use disbatch_core::model::Status;
use disbatch_core::task::{CancelRequest, Cancelled};
use serde_json::json;

use crate::api::{Answer, task_action, then};
use crate::json;
use crate::openapi::{CancelResult, ErrorBody, OfWrite, Reason};
use crate::params::Params;
use crate::state::State;

/// Cancels a task. One that has not started never will; one that runs is asked to end, with SIGTERM, and after its
/// grace with SIGKILL.
///
/// # Errors
/// There is no such task, it has ended, the reason is no text, or the database cannot be reached.
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
pub async fn handle(request: HttpRequest, state: Data<State>, id: Path<String>, params: Params) -> Answer {
    let answer = cancel(&request, &state, &id, &params).await;
    then::or_page(then::is_form(&params), answer)
}

async fn cancel(request: &HttpRequest, state: &State, id: &str, params: &Params) -> Answer {
    let task = task_action::id(id)?;
    let wish = CancelRequest { by: task_action::by(request), reason: task_action::reason(params)? };
    let (status, outcome) = match state.store.cancel_task(task, &wish).await? {
        Cancelled::Cancelled => (Status::Cancelled, "cancelled"),
        Cancelled::Requested => (Status::Running, "requested"),
        Cancelled::Ended(status) => return Err(task_action::wrong_state(status, "has ended")),
        Cancelled::NoSuchTask => return Err(task_action::not_found(id)),
    };
    let result = json!({ "id": task.to_string(), "status": status.code(), "outcome": outcome });
    then::answer(params, json::ok(&result))
}
