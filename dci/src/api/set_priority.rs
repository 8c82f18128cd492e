//! `POST /tasks/:id/priority`

use actix_web::web::{Data, Path};
use disbatch_core::task::Prioritised;
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, redirect, task_action};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, NewPriority, OfWrite, PriorityResult};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, values};

/// Gives a task that waits (queued, blocked or deferred) another priority. Queues that go by priority or are fair look at it, and
/// DENs within about a second.
#[utoipa::path(
    post, path = "/tasks/{id}/priority", tag = "tasks", operation_id = "setTaskPriority",
    params(("id" = String, Path, description = "Its id.")),
    request_body(content(
        (NewPriority = "application/json"),
        (NewPriority = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "It has it.", body = PriorityResult),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        (status = 409, description = "It has started, or has ended.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let answer = set(&state, &who, &id, &params).await;
    redirect::or_page(redirect::is_form(&params), answer)
}

async fn set(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let task = task_action::id(id)?;
    let reason = task_action::reason_beside(params, &["priority"])?;
    let missing = || HttpError::bad_request("priority is missing");
    let priority = values::priority("priority", params.fields.get("priority").ok_or_else(missing)?)?;
    match changes::set_priority(state, who, task, priority, reason).await? {
        Prioritised::Set { .. } => {
            redirect::answer(params, json::ok(&json!({ "id": task.to_string(), "priority": priority })))
        }
        Prioritised::NotWaiting(status) => Err(task_action::wrong_state(status, "does not wait any more")),
        Prioritised::NoSuchTask => Err(task_action::not_found(id)),
    }
}
