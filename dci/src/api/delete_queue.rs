//! `DELETE /queues/:queue`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use serde_json::Value;

use crate::access::{NamedQueue, Who};
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{DeleteResult, ErrorBody, OfWrite};
use crate::state::State;
use crate::{changes, json, legacy};

/// Deletes a queue. Its tasks stay.
#[utoipa::path(
    delete, path = "/queues/{queue}", tag = "queues", operation_id = "deleteQueue",
    params((
        "queue" = String, Path, example = "mail",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    responses(
        (status = 200, description = "Deleted.", body = DeleteResult),
        (status = 400, description = "There is no such queue.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue) -> Answer {
    Ok(json::ok(&delete(&state, &who, &named).await?))
}

/// Deletes the queue with this name or id. Returns the result as clients see it.
pub async fn delete(state: &State, who: &Who, named: &NamedQueue) -> Result<Value, HttpError> {
    let deleted = changes::delete_queue(state, who, named.selector.clone()).await?;
    let result = legacy::delete_result(deleted);
    if deleted == 0 {
        let body = legacy::with(result, "error", format!("no queue '{}'", named.name));
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    Ok(result)
}
