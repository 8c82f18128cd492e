//! `GET /tasks/:id/stderr`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use disbatch_core::output::StreamName;

use crate::api::Answer;
use crate::openapi::{ErrorBody, OfSearch, OutputOptions};
use crate::params::Params;
use crate::raw;
use crate::state::State;

/// What a task has written to standard error, as `GET /tasks/{id}/stdout` has standard output.
#[utoipa::path(
    get, path = "/tasks/{id}/stderr", tag = "tasks", operation_id = "getStderr",
    params(
        ("id" = String, Path, description = "The task's id."),
        OutputOptions,
        (
            "Range" = Option<String>, Header, example = "bytes=-1000",
            description = "One range of bytes: `bytes=0-99`, `bytes=100-`, or `bytes=-100` for the last ones.",
        ),
    ),
    responses(
        (
            status = 200, content((String = "text/plain"), (String = "application/octet-stream")),
            description = "The output; `application/octet-stream` if it is stored and no UTF-8.",
        ),
        (
            status = 206, content((String = "text/plain"), (String = "application/octet-stream")),
            description = "The range, or what there is of it. The total in `Content-Range` is `*` of a \
                running task.",
        ),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such task, or no such attempt.", body = ErrorBody),
        (status = 416, description = "There is nothing of this range.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, id: Path<String>, params: Params) -> Answer {
    raw::respond(&request, state, &id, &params, StreamName::Stderr).await
}
