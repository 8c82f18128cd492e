//! `POST /tasks/:id/rerun`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::Document;
use disbatch_core::accounts::Role;
use disbatch_core::model::{QueueId, Selector, Status, Task};
use disbatch_core::task::rerun::{Downstream, MOST_DOWNSTREAM, Plan};
use disbatch_core::task::{Retried, SubmitError, TaskOptions, within_budget};
use serde_json::{Value, json};

use crate::access::{Who, may_bulk};
use crate::api::retry_task::refusal;
use crate::api::{Answer, create_tasks, redirect, task_action};
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, OfWrite, RerunResult};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, values};

/// So many tasks are named that are in the way.
const NAMED: usize = 10;

/// Runs a task again that has ended, and with `downstream` those that come after it: each waits for all of these again that it comes after,
/// also for the elements of its array. With `params` it has others from now on. The task itself need not have ended if only what comes after it
/// is to wait for it again. What came out so far is kept as earlier attempts.
#[utoipa::path(
    post, path = "/tasks/{id}/rerun", tag = "tasks", operation_id = "rerunTask",
    params(("id" = String, Path, description = "Its id.")),
    request_body(content(
        (openapi::Rerun = "application/json"), (openapi::Rerun = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "It runs again.", body = RerunResult),
        (status = 400, description = "A parameter is wrong, or the params do not fit the plugin's schema.", body = ErrorBody),
        (status = 404, description = "There is no such task, or it is archived.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "It has not ended; or some that come after it run or are about to (`tasks` has their ids, ten at most), or are too many; \
                or a task with the same unique key has not ended (`task` is its id).",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let answer = rerun(&state, &who, &id, &params).await;
    redirect::or_page(redirect::is_form(&params), answer)
}

async fn rerun(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let task_id = task_action::id(id)?;
    let reason = task_action::reason_beside(params, &["downstream", "params"])?;
    let downstream = downstream(params)?;
    let task = state.store.find_task(task_id).await?.ok_or_else(|| task_action::not_found(id))?;
    let with = match params.fields.get("params").filter(|value| !values::is_unset(value)) {
        Some(value) => Some(new_params(state, &task, value).await?),
        None => None,
    };
    let plan = state.store.plan_rerun(task_id, downstream).await?;
    check(state, who, &plan).await?;
    let rerun = changes::rerun_task(state, who, (&task, with), plan, reason).await?;
    let mut result = json!({ "id": id });
    match rerun.task {
        Some(Retried::Queued) => result["status"] = Status::Queued.code().into(),
        Some(Retried::Blocked) => result["status"] = Status::Blocked.code().into(),
        // Only what comes after it waits again.
        None => result["status"] = task.status.code().into(),
        Some(other) => return Err(refusal(id, other)),
    }
    if rerun.task.is_some() {
        result["attempt"] = (task.attempt().unwrap_or(0).max(1) + 1).into();
    }
    let ids: Vec<Value> = rerun.downstream.iter().map(|task| task.to_string().into()).collect();
    result["downstream"] = ids.into();
    redirect::answer(params, json::ok(&result))
}

/// Which of those that come after it.
pub(super) fn downstream(params: &Params) -> Result<Downstream, HttpError> {
    let Some(word) = params.fields.get("downstream").filter(|word| !values::is_unset(word)) else {
        return Ok(Downstream::None);
    };
    let known = word.as_str().and_then(|word| word.parse().ok());
    known.ok_or_else(|| {
        HttpError::bad_request(format!(
            "downstream must be one of {}, got {word}",
            Downstream::WORDS.join(", ")
        ))
    })
}

/// Other parameters for a task, as they are checked where a new one gets them.
pub(super) async fn new_params(state: &State, task: &Task, value: &Value) -> Result<Document, HttpError> {
    let options = TaskOptions::of_task(task);
    let options =
        options.map_err(|why| HttpError::conflict(format!("the task cannot have other params: {why}")))?;
    let mut checked =
        create_tasks::checked_params(values::object(value).into_owned(), !options.steps.is_empty())?;
    let (Some(params), true) = (checked.pop(), checked.is_empty()) else {
        return Err(HttpError::bad_request("params must be one object"));
    };
    let Some(queue) = state.store.find_queue(&Selector::Id(task.queue.0)).await? else {
        return Err(HttpError::conflict("the queue of the task is gone"));
    };
    let (mut checked, fits) = create_tasks::fit::check(state, &queue, &options.steps, vec![params]).await?;
    fits?;
    within_budget(&options, &checked).map_err(SubmitError::from)?;
    checked.pop().ok_or_else(|| HttpError::internal("no params"))
}

/// Whether all of a plan may be done, by everybody and by `who`. Returns the queues that it is about.
pub(super) async fn check(state: &State, who: &Who, plan: &Plan) -> Result<Vec<QueueId>, HttpError> {
    if plan.too_many {
        let why = format!("more than {MOST_DOWNSTREAM} tasks come after it: run parts of them again");
        return Err(HttpError::conflict(why));
    }
    let mut queues: Vec<_> = plan.waiters.iter().map(|waiter| waiter.queue).collect();
    queues.sort_unstable();
    queues.dedup();
    for queue in &queues {
        may_bulk(who, Role::Operator, Some(*queue), state).await?;
    }
    if plan.busy.is_empty() {
        return Ok(queues);
    }
    let ids: Vec<String> = plan.busy.iter().take(NAMED).map(ToString::to_string).collect();
    let error =
        format!("{} tasks that come after it run or are about to: cancel them, or wait", plan.busy.len());
    Err(HttpError::with_body(StatusCode::CONFLICT, json!({ "error": error, "tasks": ids })))
}
