//! `DELETE /queues/:queue`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;
use serde_json::Value;

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{DeleteResult, ErrorBody, OfWrite};
use crate::state::State;
use crate::{json, legacy};

/// Deletes a queue. Its tasks stay.
///
/// # Errors
/// There is no such queue, or the database cannot be reached.
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
pub async fn handle(state: Data<State>, name: Path<String>) -> Answer {
    Ok(json::ok(&delete(&state, &name).await?))
}

/// Deletes the queue with this name or id. Returns the result as clients see it.
///
/// # Errors
/// There is none, or the database cannot be reached.
pub async fn delete(state: &State, name: &str) -> Result<Value, HttpError> {
    let deleted = state.store.delete_queue(&Selector::parse(name)).await?;
    let result = legacy::delete_result(deleted);
    if deleted == 0 {
        let body = legacy::with(result, "error", format!("no queue '{name}'"));
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    Ok(result)
}
