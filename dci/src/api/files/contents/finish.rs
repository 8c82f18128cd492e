//! `POST /files/contents/:sha256/finish`

use actix_web::web::{Data, Path};
use serde_json::json;

use super::named;
use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{ContentFinished, ErrorBody, OfWrite};
use crate::state::State;
use crate::{changes, files, json as js};

/// Makes a content of what whoever asks has sent: all of it is read back, and its SHA-256 is compared. May be repeated. Without a
/// version that has it, it goes away after a day.
#[utoipa::path(
    post, path = "/files/contents/{sha256}/finish", tag = "files", operation_id = "finishContent",
    params(("sha256" = String, Path, description = "The SHA-256 of the content: 64 digits in lower case.")),
    responses(
        (status = 200, description = "It is there.", body = ContentFinished),
        (status = 404, description = "Nothing of it was sent, or that is no SHA-256.", body = ErrorBody),
        (status = 409, description = "Chunks are missing: `missing` says which.", body = ErrorBody),
        (
            status = 422, body = ErrorBody,
            description = "What was sent has another SHA-256. It was thrown away, and has to be sent again from the start.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    files::may_store(&who)?;
    changes::finish_content(&state, &who, named(&id)?).await?;
    Ok(js::ok(&json!({ "sha256": id.as_str(), "done": true })))
}
