//! `POST /bulk/:id/cancel`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use disbatch_core::bulk::BulkCancelled;
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, then};
use crate::openapi::{ErrorBody, OfWrite};
use crate::state::State;
use crate::{accept, bulk, changes, json};

/// Stops a bulk job after the tasks that it is at. What it has done stays done.
#[utoipa::path(
    post, path = "/bulk/{id}/cancel", tag = "bulk", operation_id = "cancelBulkJob",
    params(("id" = String, Path, description = "Its id.")),
    responses(
        (
            status = 200, description = "Stopped.", body = Object,
            example = json!({"id": "6b0003bb686c8275d8014444", "state": "cancelled"}),
        ),
        (status = 303, description = "To the job's page, if `Accept` asks for HTML."),
        (status = 404, description = "There is no such job.", body = ErrorBody),
        (status = 409, description = "It is over.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, id: Path<String>) -> Answer {
    let cancelled = match changes::cancel_bulk(&state, &who, bulk::id_of(&id)?).await? {
        BulkCancelled::Cancelled => Ok(json!({ "id": *id, "state": "cancelled" })),
        BulkCancelled::NotRunning(ended) => {
            Err(bulk::conflict(format!("the bulk job is over: its state is {}", ended.as_str())))
        }
        BulkCancelled::NoSuchJob => Err(bulk::not_found(&id)),
    };
    if accept::wants_html(&request) {
        return then::lead(cancelled, &format!("/bulk/{id}"));
    }
    Ok(json::ok(&cancelled?))
}
