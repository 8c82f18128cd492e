//! `GET /tasks/:id`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use bson::{Document, doc};
use disbatch_core::model::{TaskId, whole_number};
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfRead, OneTask, Task};
use crate::params::Params;
use crate::query::Shape;
use crate::state::State;
use crate::{accept, gates, json, rows, ui};

/// One task, also if it is in the archive: JSON over many lines, or a page. The options `.full`, `.terse` and `.epoch` say how it is written;
/// with `.details`, JSON has also how it was run.
#[utoipa::path(
    get, path = "/tasks/{id}", tag = "tasks", operation_id = "getTask",
    params(("id" = String, Path, description = "Its id."), OneTask),
    responses(
        (
            status = 200, content((Task = "application/json"), (String = "text/html")),
            description = "The task; a page if `Accept` asks for HTML.",
        ),
        (
            status = 404, content((ErrorBody = "application/json"), (String = "text/html")),
            description = "There is no such task.",
        ),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    id: Path<String>,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(match params.and_then(|params| params.integer("attempt")) {
            Ok(attempt) => ui::task::respond(&state, &who, &id, attempt).await,
            Err(error) => ui::page(Err(error)),
        });
    }
    // Options that cannot be read are as good as none, as to Perl's DCI.
    let shape = Shape::of(&params.unwrap_or_default());
    let sight = gates::sight(&state, &who).await?;
    let _turn = state.budget.answers.turn().await?;
    Ok(match look_up(&state, &id).await {
        Ok(task) => json::ok_pretty(&rows::view(&state.store, task, shape, &sight).await?),
        Err(error) => {
            let body = json::pretty(&json!({ "error": error.message() }));
            error.response().content_type(json::CONTENT_TYPE).body(body)
        }
    })
}

/// The task, without the ids of others that who asks may not see.
pub async fn find(state: &State, who: &Who, id: &str) -> Result<Document, HttpError> {
    let mut task = look_up(state, id).await?;
    gates::sight(state, who).await?.conceal(&state.store, &mut task).await?;
    Ok(task)
}

async fn look_up(state: &State, id: &str) -> Result<Document, HttpError> {
    let not_found = || HttpError::not_found(format!("no task with id {id}"));
    let id: TaskId = id.parse().map_err(|_| not_found())?;
    let mut task = state.store.find_task_anywhere(id).await?.ok_or_else(not_found)?;
    // Of others it is of no interest, and most have ended well.
    let may_be_aside = !task.contains_key("history") && !task.contains_key("archived");
    let waits = task.get("status").and_then(whole_number).is_some_and(|status| (-7..=0).contains(&status));
    if (may_be_aside || waits)
        && let Some(aside) = state.store.find_aside(id).await?
    {
        task.insert("aside", doc! { "at": aside.at, "reason": aside.reason });
    }
    Ok(task)
}
