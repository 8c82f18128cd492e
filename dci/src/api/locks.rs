//! Locks, and what tasks come after.

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use disbatch_wire::locks::{Lock, LockDetails, TaskGraph};

use crate::access::Who;
use crate::api::{Answer, task_actions};
use crate::openapi::{ErrorBody, GraphExtent, LockSearch, OfRead, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, gates, json, ui};

/// The locks that tasks hold or wait for, in the order of their names, with the first of those who hold them. Who may see
/// some queues only sees locks of their tasks, and of other tasks that there are some.
#[utoipa::path(
    get, path = "/locks", tag = "locks", operation_id = "listLocks",
    params(LockSearch),
    responses(
        (
            status = 200, content((Vec<Lock> = "application/json"), (String = "text/html")),
            description = "The locks; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn list(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::locks::list(&state, &who, &params).await));
    }
    let sight = gates::sight(&state, &who).await?;
    let locks = gates::locks(&state, &sight, &gates::filter(&params)?).await?;
    json::of(&locks.iter().map(gates::of_row).collect::<Vec<_>>())
}

/// A lock: who holds it, and the first 100 of those who wait for it, in the order in which they get it. A task of a queue that
/// the client may not see has no id, and says `hidden`.
#[utoipa::path(
    get, path = "/locks/{name}", tag = "locks", operation_id = "getLock",
    params(("name" = String, Path, description = "Its name.", example = "db")),
    responses(
        (
            status = 200, content((LockDetails = "application/json"), (String = "text/html")),
            description = "The lock; a page if `Accept` asks for HTML.",
        ),
        (
            status = 404, content((ErrorBody = "application/json"), (String = "text/html")),
            description = "Nobody holds it or waits for it whose tasks the client may see.",
        ),
        OfRead,
    ),
)]
pub async fn get(request: HttpRequest, state: Data<State>, who: Who, name: Path<String>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::locks::one(&state, &who, &name).await));
    }
    let sight = gates::sight(&state, &who).await?;
    json::of(&gates::of_details(&gates::lock(&state, &sight, &name).await?))
}

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
pub async fn graph(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task = task_actions::task_id(&id)?;
    let (depth, most) = gates::extent(&params)?;
    let graph = state.store.neighbours(task, depth, most).await?;
    if graph.tasks.is_empty() {
        return Err(task_actions::not_found(&id));
    }
    let sight = gates::sight(&state, &who).await?;
    json::of(&gates::of_graph(&graph, &sight))
}
