//! `GET /bulk/:id`

use actix_web::web::{Data, Path};

use crate::api::Answer;
use crate::openapi::{BulkJob, ErrorBody, OfRead};
use crate::state::State;
use crate::{bulk, json};

/// One bulk job and how far it is.
///
/// # Errors
/// There is none, or the database cannot be reached.
#[utoipa::path(
    get, path = "/bulk/{id}", tag = "bulk", operation_id = "getBulkJob",
    params(("id" = String, Path, description = "Its id.")),
    responses(
        (status = 200, description = "The job.", body = BulkJob),
        (status = 404, description = "There is no such job.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, id: Path<String>) -> Answer {
    let job = bulk::find(&state, &id).await?;
    Ok(json::ok(&bulk::view(&job, true)))
}
