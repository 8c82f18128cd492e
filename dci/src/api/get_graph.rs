//! `GET /tasks/:id/graph`

use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::{Answer, task_action};
use crate::openapi::{ErrorBody, GraphExtent, OfSearch, TaskGraph};
use crate::params::Params;
use crate::state::State;
use crate::{gates, json};

/// The tasks that a task comes after and those that come after it, and so on: a graph, as nodes and edges. A task of a queue
/// that the client may not see has no id, and says `hidden`.
#[utoipa::path(
    get, path = "/tasks/{id}/graph", tag = "tasks", operation_id = "getTaskGraph",
    params(("id" = String, Path, description = "Its id."), GraphExtent),
    responses(
        (status = 200, description = "The graph.", body = TaskGraph),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task = task_action::id(&id)?;
    let (depth, most) = gates::extent(&params)?;
    let graph = state.store.neighbours(task, depth, most).await?;
    if graph.tasks.is_empty() {
        return Err(task_action::not_found(&id));
    }
    let sight = gates::sight(&state, &who).await?;
    Ok(json::ok(&gates::of_graph(&graph, &sight)))
}
