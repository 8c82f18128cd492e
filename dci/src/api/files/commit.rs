//! `POST /files/versions/:id/commit`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::files::{Committed, SetState};
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, OfWrite};
use crate::state::State;
use crate::{changes, files, json as js};

/// Makes a version done that whoever asks has opened: it is shown from then on, and does not change any more. May be repeated.
#[utoipa::path(
    post, path = "/files/versions/{id}/commit", tag = "files", operation_id = "commitFileSetVersion",
    params(("id" = String, Path, description = "The id of the version.", example = "6b0003bb686c8275d8015555")),
    responses(
        (status = 200, description = "Done.", body = openapi::FileSetVersion),
        (status = 400, description = "It has too many files.", body = ErrorBody),
        (status = 404, description = "There is no such version that whoever asks has opened.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "Contents of its files are gone, or have another size: `contents` has the first of them. When they \
                are sent again, it may be committed.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    let set = files::opened(&state, &who, &id).await?;
    if set.state == SetState::Done {
        return Ok(js::ok(&files::of_set(&set)));
    }
    match changes::commit_files(&state, &who, set.id).await? {
        Committed::Done(done) => Ok(js::ok(&files::of_set(&done))),
        Committed::Incomplete(missing) => {
            let named: Vec<String> = missing.iter().map(ToString::to_string).collect();
            let message =
                "contents of its files are missing, or have another size than the files: send them again";
            let body = json!({ "error": message, "contents": named });
            Err(HttpError::with_body(StatusCode::CONFLICT, body))
        }
    }
}
