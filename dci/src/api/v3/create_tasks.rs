//! `POST /queue-create-tasks-json`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_core::model::{Queue, QueueId, Selector, TaskId};
use disbatch_core::task::TaskOptions;
use serde_json::{Value, json};

use super::{declined, in_array, parsed, refused, required};
use crate::access::Who;
use crate::api::{Answer, create_tasks};
use crate::error::HttpError;
use crate::openapi::{CreateTasks, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{json, legacy};

/// Creates one task in the queue `queueid` (a name or id) for each object of the array `object`.
#[utoipa::path(
    post, path = "/queue-create-tasks-json", tag = "Disbatch::Web::V3", operation_id = "queueCreateTasksJson",
    request_body(content(
        (CreateTasks = "application/json"),
        (CreateTasks = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, body = Value, description = "`[1, number, id.., result]`, or `[0, message]`."),
        (
            status = 400, body = Value,
            description = "`[0, message]`, or the result of the write with `error`.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    params.refuse_options().map_err(in_array)?;
    let [queue, object] =
        required(&params, ["queueid", "object"]).ok_or_else(|| refused("queueid and object required"))?;
    let Some(queue) = find_queue(&state, queue).await? else { return Ok(declined("Queue not found")) };
    let object = match parsed("object", object) {
        Ok(object @ Value::Array(_)) => object,
        Ok(_) => return Ok(declined("object param must be a JSON array")),
        Err(message) => return Ok(declined(&message)),
    };
    if object == json!([]) {
        return answer(&[]);
    }
    let tasks = create_tasks::task_params(object).map_err(in_array)?;
    let wishes = (TaskOptions::default(), None);
    answer(&create_tasks::submit(&state, &who, &queue, tasks, wishes).await.map_err(in_array)?)
}

/// The queue of that name, or of that id, which need not exist: tasks may be created for a queue that is
/// gone, but not for one that accepts none.
pub async fn find_queue(state: &State, value: &Value) -> Result<Option<Queue>, HttpError> {
    let name = match value {
        Value::String(name) => name.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Ok(None), // Nothing else names a queue.
    };
    let selector = Selector::parse(&name);
    match (state.store.find_queue(&selector).await?, selector) {
        (Some(queue), _) if !queue.is_accepting() => Err(in_array(create_tasks::accepts_nothing(&queue))),
        (Some(queue), _) => Ok(Some(queue)),
        (None, Selector::Id(id)) => Ok(Some(Queue::without_document(QueueId(id)))),
        (None, Selector::Name(_)) => Ok(None),
    }
}

fn answer(ids: &[TaskId]) -> Answer {
    let result = legacy::insert_many_result(ids);
    let inserted = result["MongoDB::InsertManyResult"]["inserted"].as_array().cloned().unwrap_or_default();
    if ids.is_empty() {
        let result = legacy::with(legacy::with(result, "error", "Unknown error"), "success", 0);
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, 0, result])));
    }
    let head = [Value::from(1), Value::from(ids.len())];
    let tail = [legacy::with(result, "success", 1)];
    Ok(json::ok(&head.into_iter().chain(inserted).chain(tail).collect()))
}
