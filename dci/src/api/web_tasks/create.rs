//! `POST /tasks/:queue`

use actix_web::web::Data;
use disbatch_core::task::TaskOptions;

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, create_tasks};
use crate::openapi::{ErrorBody, InsertManyResult, OfWrite, TaskParams};
use crate::params::AnyJson;
use crate::state::State;

/// Creates one task in the queue for each object of the array that is the body.
#[utoipa::path(
    post, path = "/tasks/{queue}", tag = "Disbatch::Web::Tasks", operation_id = "createTasksInQueue",
    params((
        "queue" = String, Path, example = "mail",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    request_body = TaskParams,
    responses(
        (status = 200, description = "Submitted.", body = InsertManyResult),
        (status = 400, description = "The body is wrong, or there is no such queue.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue, body: AnyJson) -> Answer {
    let queue = create_tasks::open_queue(&state, &named.selector).await?;
    if !body.0.is_array() {
        return Err(create_tasks::not_an_array());
    }
    let tasks = create_tasks::task_params(body.0)?;
    let wishes = (TaskOptions::default(), None);
    create_tasks::answer(create_tasks::submit(&state, &who, &queue, tasks, wishes).await?)
}
