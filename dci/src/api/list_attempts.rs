//! `GET /tasks/:id/attempts`

use actix_web::web::{Data, Path};
use serde_json::Value;

use crate::access::Who;
use crate::api::{Answer, get_task, task_action};
use crate::gates;
use crate::json;
use crate::openapi::{Attempt, ErrorBody, OfRead};
use crate::params::Params;
use crate::query::Shape;
use crate::rows;
use crate::state::State;

/// The earlier attempts of a task with what came out of each, the first one first. The last attempt is the task
/// itself. The options `.full`, `.terse`, `.epoch` and `.pretty` are those of `GET /tasks`.
#[utoipa::path(
    get, path = "/tasks/{id}/attempts", tag = "tasks", operation_id = "listAttempts",
    params(
        ("id" = String, Path, description = "The task's id."),
        (".full" = Option<bool>, Query, description = "With large output as text."),
        (".terse" = Option<bool>, Query, description = "Without output."),
        (".epoch" = Option<bool>, Query, description = "Times as seconds since 1970."),
        (".pretty" = Option<bool>, Query, description = "Over many lines."),
    ),
    responses(
        (status = 200, description = "The attempts; none if it was tried once.", body = Vec<Attempt>),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let attempts = state.store.list_attempts(task_action::id(&id)?).await?;
    if attempts.is_empty() {
        // Tells a task without attempts from one that is not there.
        get_task::find(&state, &who, &id).await?;
    }
    let sight = gates::sight(&state, &who).await?;
    let shape = Shape { details: true, ..Shape::of(&params) };
    let mut shown = Vec::new();
    for mut attempt in attempts {
        attempt.remove("_id");
        attempt.remove("task");
        shown.push(rows::view(&state.store, attempt, shape, &sight).await?);
    }
    let shown = Value::Array(shown);
    Ok(if shape.pretty { json::ok_pretty(&shown) } else { json::ok(&shown) })
}
