//! What is done with one task, and what operations on arrays have in common with that.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::{Document, doc};
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, QueueId, Selector, Status, Task, TaskId, whole_number};
use disbatch_core::task::question::Awaiting;
use disbatch_core::task::rerun::{Downstream, MOST_DOWNSTREAM, Plan};
use disbatch_core::task::{Cancelled, Prioritised, Retried, SubmitError, TaskOptions, within_budget};
use disbatch_wire::liberal::Set;
use disbatch_wire::task_actions::{
    ArchiveResult, CancelResult, NewPriority, PriorityResult, Reason, Rerun, RerunResult, RetryResult,
};
use serde_json::{Value, json};

use crate::access::{Who, may_bulk};
use crate::api::{Answer, create_tasks, redirect};
use crate::changes::ArchivedOne;
use crate::error::HttpError;
use crate::openapi::JSON_OR_FORM;
use crate::params::Params;
use crate::state::State;
use crate::{changes, values};

pub fn task_id(text: &str) -> Result<TaskId, HttpError> {
    text.parse().map_err(|_| not_found(text))
}

pub fn not_found(id: &str) -> HttpError {
    HttpError::not_found(format!("no task with id {id}"))
}

pub fn wrong_state(status: Status, what: &str) -> HttpError {
    HttpError::conflict(format!("the task {what}: its status is {} ({})", status.code(), status.word()))
}

/// Cancels a task. One that has not started never will; one that runs is asked to end, with SIGTERM, and after its
/// grace with SIGKILL. One that a web service works on ends, and the service is told so when it calls back.
#[utoipa::path(
    post, path = "/tasks/{id}/cancel", tag = "tasks", operation_id = "cancelTask",
    request_body(content = Reason, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Cancelled, or asked to end.", body = CancelResult),
        (status = 409, description = "It has ended."),
    ),
)]
pub async fn cancel_task(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task = task_id(&id)?;
    let Reason { reason } = params.given()?;
    let (status, outcome) = match changes::cancel_task(&state, &who, task, reason.text()).await? {
        Cancelled::Cancelled => (Status::Cancelled, "cancelled"),
        Cancelled::Requested => (Status::Running, "requested"),
        Cancelled::Terminated => (Status::Terminated, "terminated"),
        Cancelled::Ended(status) => return Err(wrong_state(status, "has ended")),
        Cancelled::NoSuchTask => return Err(not_found(&id)),
    };
    let (status, outcome) = (status.code(), outcome.to_owned());
    redirect::reply(&params, &CancelResult { id: task.to_string(), status, outcome })
}

/// Queues a task again that has ended. What came out of it is kept: see `GET /tasks/{id}/attempts`. A deferred task is queued at
/// once, before its time. Of an archived task a new one like it is made, whose id is in the answer.
#[utoipa::path(
    post, path = "/tasks/{id}/retry", tag = "tasks", operation_id = "retryTask",
    request_body(content = Reason, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Queued again.", body = RetryResult),
        (status = 409, description = "It has not ended and is not deferred; its queue is gone or accepts no tasks, if it is archived; the \
            inbox has refused it; or a task with the same unique key has not (`task` is its id)."),
    ),
)]
pub async fn retry_task(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task_id = task_id(&id)?;
    let Reason { reason } = params.given()?;
    let Some(task) = state.store.find_task(task_id).await? else {
        return redirect::reply(&params, &like_archived(&state, &who, task_id).await?);
    };
    let status = match changes::retry_task(&state, &who, &task, reason.text()).await? {
        Retried::Queued => Status::Queued,
        Retried::Blocked => Status::Blocked,
        Retried::NotEnded(Status::Deferred) if Awaiting::of(&task).is_some() => {
            return Err(HttpError::conflict(
                "the task waits for an answer: it goes on with that, and not before",
            ));
        }
        other => return Err(refusal(&id, other)),
    };
    // A task of Perl's has no number; what it did was its first attempt all the same.
    let before = if task.status == Status::Deferred { 0 } else { 1 };
    let attempt = task.attempt().unwrap_or(0).max(before) + 1;
    let (id, status) = (task_id.to_string(), Some(status.code()));
    redirect::reply(&params, &RetryResult { id, status, attempt, retry_of: None })
}

/// Makes a new task like an archived one, which stays where it is.
async fn like_archived(state: &State, who: &Who, id: TaskId) -> Result<RetryResult, HttpError> {
    let task = state.store.find_archived(id).await?.ok_or_else(|| not_found(&id.to_string()))?;
    let queue = state.store.find_queue(&Selector::Id(task.queue.0)).await?;
    let queue = queue.ok_or_else(|| HttpError::conflict("the task is archived, and its queue is gone"))?;
    let options = TaskOptions::of_task(&task);
    let options =
        options.map_err(|why| HttpError::conflict(format!("the task cannot be made anew: {why}")))?;
    check_submission(state, who, (&queue, &options), "to retry an archived task").await?;
    let own = task.params().as_document().cloned().unwrap_or_default();
    let new = create_tasks::submit(state, who, &queue, vec![own], (options, None)).await?;
    let new = new.first().copied().ok_or_else(|| HttpError::internal("no task was made"))?;
    let made = state.store.find_task_fields(new, doc! { "status": 1 }).await?;
    let status = made.as_ref().and_then(|task| task.get("status")).and_then(whole_number);
    Ok(RetryResult { id: new.to_string(), status, attempt: 1, retry_of: Some(id.to_string()) })
}

/// Sees to it that `who` could submit a task with these options: who has a role on a task alone, and none on its queue, could not. `what`
/// needs that.
async fn check_submission(
    state: &State,
    who: &Who,
    (queue, options): (&Queue, &TaskOptions),
    what: &str,
) -> Result<(), HttpError> {
    let hidden = || HttpError::forbidden(format!("{what} needs the role submitter on its queue"));
    who.check(Role::Submitter, queue).map_err(|error| error.hidden_as(hidden))?;
    create_tasks::check_accepting(state, queue)?;
    create_tasks::options::check_steps(state, who, queue, &options.steps).await?;
    let tenant = options.tenant.as_deref();
    create_tasks::options::check_tenant(who, queue, tenant)?;
    create_tasks::options::check_files(who, options.files.as_ref(), tenant)
}

pub fn refusal(id: &str, retried: Retried) -> HttpError {
    match retried {
        Retried::NotEnded(status) => wrong_state(status, "has not ended"),
        Retried::NotUnique(other) => not_unique(other),
        Retried::Refused => HttpError::conflict(Retried::WAS_REFUSED),
        Retried::NoSuchTask => not_found(id),
        Retried::Queued | Retried::Blocked => HttpError::internal("it is tried again"),
    }
}

/// Another task has its key: this one, unless it has ended since.
fn not_unique(other: Option<TaskId>) -> HttpError {
    let mut body = json!({ "error": Retried::NOT_UNIQUE });
    if let Some(other) = other {
        body["task"] = other.to_string().into();
    }
    HttpError::with_body(StatusCode::CONFLICT, body)
}

/// So many tasks are named that are in the way.
const NAMED: usize = 10;

/// Runs a task again that has ended, and with `downstream` those that come after it: each waits for all of these again that it comes after,
/// also for the elements of its array. With `params` it has others from now on. The task itself need not have ended if only what comes after it
/// is to wait for it again. What came out so far is kept as earlier attempts.
#[utoipa::path(
    post, path = "/tasks/{id}/rerun", tag = "tasks", operation_id = "rerunTask",
    request_body(content = Rerun, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "It runs again.", body = RerunResult),
        (status = 400, description = "A parameter is wrong, or the params do not fit the plugin's schema."),
        (status = 404, description = "There is no such task, or it is archived."),
        (status = 409, description = "It has not ended; or some that come after it run or are about to (`tasks` has their ids, ten at \
            most), or are too many; or a task with the same unique key has not ended (`task` is its id)."),
    ),
)]
pub async fn rerun_task(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task_id = task_id(&id)?;
    let wanted: Rerun = params.given()?;
    let downstream = downstream(wanted.downstream)?;
    let task = state.store.find_task(task_id).await?.ok_or_else(|| not_found(&id))?;
    let with = match &wanted.params.0 {
        Some(value) => Some(new_params(&state, &who, &task, value).await?),
        None => None,
    };
    let plan = state.store.plan_rerun(task_id, downstream).await?;
    check(&state, &who, &plan).await?;
    let rerun = changes::rerun_task(&state, &who, (&task, with), plan, wanted.reason.text()).await?;
    let status = match rerun.task {
        Some(Retried::Queued) => Status::Queued,
        Some(Retried::Blocked) => Status::Blocked,
        // Only what comes after it waits again.
        None => task.status,
        Some(other) => return Err(refusal(&id, other)),
    };
    let result = RerunResult {
        id: id.into_inner(),
        status: status.code(),
        attempt: rerun.task.map(|_| task.attempt().unwrap_or(0).max(1) + 1),
        downstream: rerun.downstream.iter().map(ToString::to_string).collect(),
    };
    redirect::reply(&params, &result)
}

pub(super) fn downstream(Set(word): Set<Value>) -> Result<Downstream, HttpError> {
    let Some(word) = word else { return Ok(Downstream::None) };
    let known = word.as_str().and_then(Downstream::named);
    known.ok_or_else(|| {
        HttpError::bad_request(format!(
            "downstream must be one of {}, got {word}",
            Downstream::ALL.map(Downstream::as_str).join(", ")
        ))
    })
}

/// Other parameters for a task, as they are checked where a new one gets them: it is another task in all but its name.
pub(super) async fn new_params(
    state: &State,
    who: &Who,
    task: &Task,
    value: &Value,
) -> Result<Document, HttpError> {
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
    check_submission(state, who, (&queue, &options), "to give a task other params").await?;
    if options.secure_params.is_some() && !who.is_everywhere(Role::Operator) {
        let why =
            "to give other params to a task with secure parameters needs the role operator on all queues";
        return Err(HttpError::forbidden(why));
    }
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
    let of_busy = plan.busy.iter().map(|(_, queue)| *queue);
    let mut queues: Vec<_> = plan.waiters.iter().map(|waiter| waiter.queue).chain(of_busy).collect();
    queues.sort_unstable();
    queues.dedup();
    for queue in &queues {
        may_bulk(who, Role::Operator, Some(*queue), state).await?;
    }
    if plan.busy.is_empty() {
        return Ok(queues);
    }
    let ids: Vec<String> = plan.busy.iter().take(NAMED).map(|(id, _)| id.to_string()).collect();
    let error =
        format!("{} tasks that come after it run or are about to: cancel them, or wait", plan.busy.len());
    Err(HttpError::with_body(StatusCode::CONFLICT, json!({ "error": error, "tasks": ids })))
}

/// Gives a task that waits (queued, blocked or deferred) another priority. Queues that go by priority or are fair look at it, and
/// DENs within about a second.
#[utoipa::path(
    post, path = "/tasks/{id}/priority", tag = "tasks", operation_id = "setTaskPriority",
    request_body(content = NewPriority, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "It has it.", body = PriorityResult),
        (status = 409, description = "It has started, or has ended."),
    ),
)]
pub async fn set_priority(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task = task_id(&id)?;
    let NewPriority { priority, reason } = params.given()?;
    let missing = || HttpError::bad_request("priority is missing");
    let priority = values::priority("priority", &priority.ok_or_else(missing)?)?;
    match changes::set_priority(&state, &who, task, priority, reason.text()).await? {
        Prioritised::Set { .. } => {
            redirect::reply(&params, &PriorityResult { id: task.to_string(), priority })
        }
        Prioritised::NotWaiting(status) => Err(wrong_state(status, "does not wait any more")),
        Prioritised::NoSuchTask => Err(not_found(&id)),
    }
}

/// Moves a task that has ended to the archive. It is read as before; a retry makes a new task like it.
#[utoipa::path(
    post, path = "/tasks/{id}/archive", tag = "tasks", operation_id = "archiveTask",
    responses(
        (status = 200, description = "It is in the archive.", body = ArchiveResult),
        (status = 400, description = "There are parameters."),
        (status = 409, description = "It has not ended; or others wait for it, and are told of its end within seconds."),
    ),
)]
pub async fn archive_task(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task = task_id(&id)?;
    params.only(&[])?;
    let outcome = match changes::archive_task(&state, &who, task).await? {
        ArchivedOne::Archived => "archived",
        ArchivedOne::Before => "archived before",
        ArchivedOne::NotEnded(status) => return Err(wrong_state(status, "has not ended")),
        ArchivedOne::Awaited => {
            return Err(HttpError::conflict(
                "other tasks wait to be told of its end, or its submission is not complete: try again in a few seconds",
            ));
        }
        ArchivedOne::NoSuchTask => return Err(not_found(&id)),
    };
    redirect::reply(&params, &ArchiveResult { id: task.to_string(), outcome })
}
