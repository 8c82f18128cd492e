//! `POST /arrays/:id/retry`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use disbatch_core::bulk::Action;

use super::act;
use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{ArrayJob, ErrorBody, OfWrite, Reason};
use crate::params::Params;
use crate::state::State;

/// Tries those elements of an array again, in the background, that have ended without success. The array is open
/// again. A task that was cancelled because they had failed comes after them once more.
#[utoipa::path(
    post, path = "/arrays/{id}/retry", tag = "arrays", operation_id = "retryArray",
    params(("id" = String, Path, description = "Its id.")),
    request_body(content((Reason = "application/json"), (Reason = "application/x-www-form-urlencoded"))),
    responses(
        (status = 202, description = "The id of the bulk job that does it.", body = ArrayJob),
        (status = 303, description = "To the array's page, if `Accept` asks for HTML."),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such array.", body = ErrorBody),
        (status = 409, description = "There is no element to do that to.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    id: Path<String>,
    params: Params,
) -> Answer {
    act(&request, &state, &who, (&id, &params), Action::Retry).await
}
