//! `GET /files/contents/:sha256`

use actix_web::web::{Data, Path};

use super::named;
use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{ContentChunks, ErrorBody, OfRead};
use crate::state::State;
use crate::{files, json};

/// Which chunks of a content whoever asks still has to send. A content that this user may not name, as others have it, is as if
/// nobody had it. Asking for an upload keeps it from being given up, which is done a day after it was last touched.
#[utoipa::path(
    get, path = "/files/contents/{sha256}", tag = "files", operation_id = "getContent",
    params(("sha256" = String, Path, description = "The SHA-256 of the content: 64 digits in lower case.")),
    responses(
        (status = 200, description = "What is there.", body = ContentChunks),
        (status = 404, description = "That is no SHA-256.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    files::may_store(&who)?;
    let content = named(&id)?;
    let may_name = files::refused(&state, &who, &[content]).await?.is_empty();
    let chunks = state.store.content_state(content, &files::sender(&who), may_name).await?;
    Ok(json::ok(&files::of_chunks(&id, &chunks)))
}
