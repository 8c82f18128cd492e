//! `POST /tasks/:id/archive`

use actix_web::web::{Data, Path};
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, redirect, task_action};
use crate::changes::ArchivedOne;
use crate::error::HttpError;
use crate::openapi::{ArchiveResult, ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json};

/// Moves a task that has ended to the archive. It is read as before; a retry makes a new task like it.
#[utoipa::path(
    post, path = "/tasks/{id}/archive", tag = "tasks", operation_id = "archiveTask",
    params(("id" = String, Path, description = "Its id.")),
    responses(
        (status = 200, description = "It is in the archive.", body = ArchiveResult),
        (status = 400, description = "There are parameters.", body = ErrorBody),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "It has not ended; or others wait for it, and are told of its end within seconds.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let answer = archive(&state, &who, &id, &params).await;
    redirect::or_page(redirect::is_form(&params), answer)
}

async fn archive(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let task = task_action::id(id)?;
    params.only(&[])?;
    let outcome = match changes::archive_task(state, who, task).await? {
        ArchivedOne::Archived => "archived",
        ArchivedOne::Before => "archived before",
        ArchivedOne::NotEnded(status) => return Err(task_action::wrong_state(status, "has not ended")),
        ArchivedOne::Awaited => {
            return Err(HttpError::conflict(
                "other tasks wait to be told of its end: try again in a few seconds",
            ));
        }
        ArchivedOne::NoSuchTask => return Err(task_action::not_found(id)),
    };
    redirect::answer(params, json::ok(&json!({ "id": task.to_string(), "outcome": outcome })))
}
