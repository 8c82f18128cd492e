//! `GET /tasks/:id/explain`

use actix_web::web::{Data, Path};
use bson::doc;
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::explain::{Explanation, Reader, explain, unreadable};
use disbatch_core::gates::Waits;
use disbatch_core::model::{Status, TaskId, whole_number};
use disbatch_core::store::StoreError;
use serde_json::{Value, json};

use crate::access::{Sight, Who};
use crate::api::{Answer, task_action};
use crate::error::HttpError;
use crate::json;
use crate::openapi::{ErrorBody, Explained, OfRead};
use crate::state::State;

/// Why a task does not run, how it runs, or how it ended, in sentences for people: what it has to pass, and whether
/// it may.
#[utoipa::path(
    get, path = "/tasks/{id}/explain", tag = "tasks", operation_id = "explainTask",
    params(("id" = String, Path, description = "Its id.")),
    responses(
        (status = 200, description = "What it waits for.", body = Explained),
        (status = 404, description = "There is no such task.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    let explanation = find(&state, &id, &who.reach(Role::Viewer)).await?;
    let gate = |gate: &disbatch_core::explain::Gate| json!({ "gate": gate.name, "open": gate.open, "text": gate.text });
    let gates: Vec<Value> = explanation.gates.iter().map(gate).collect();
    Ok(json::ok(&json!({
        "id": id.as_str(),
        "status": explanation.status.code(),
        "word": explanation.status.word(),
        "summary": explanation.summary,
        "gates": gates,
    })))
}

/// What is to be said of the task to those whose rights reach so far.
pub async fn find(state: &State, id: &str, reach: &Reach) -> Result<Explanation, HttpError> {
    let task = task_action::id(id)?;
    let facts = match state.store.facts_of_task(task).await {
        Err(error) if error.is_about_one() => return cannot_be_read(state, (id, task), &error).await,
        facts => facts?,
    };
    let mut facts = facts.ok_or_else(|| task_action::not_found(id))?;
    if facts.waits != Waits::default() {
        let sight = Sight::of(&state.store, reach).await?;
        facts.waits.conceal(|queue| sight.sees(queue));
    }
    Ok(explain(&facts, Reader::of(reach)))
}

/// What is to be said of a task that cannot be read. That it is there can be told all the same.
async fn cannot_be_read(
    state: &State,
    (id, task): (&str, TaskId),
    error: &StoreError,
) -> Result<Explanation, HttpError> {
    let found = state.store.find_task_fields(task, doc! { "status": 1 }).await?;
    let found = found.ok_or_else(|| task_action::not_found(id))?;
    let status =
        found.get("status").and_then(whole_number).map_or(Status::Other(i64::MIN), Status::from_code);
    let aside = state.store.find_aside(task).await?;
    Ok(unreadable(status, &error.to_string(), aside.as_ref()))
}
