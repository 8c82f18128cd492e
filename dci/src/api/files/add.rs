//! `POST /files/versions/:id/entries`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::files::ContentId;
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, FilesAdded, NewFiles, OfWrite};
use crate::params::AnyJson;
use crate::state::State;
use crate::{changes, files, json as js};

/// So many contents that are missing are named.
const NAMED: usize = 100;

/// Adds files to a version that whoever asks has opened: up to 1,000 at once. Their contents must have been sent by the same
/// user, or be in a version that this user may read. A file that is there already, with the same content, size and mode, counts
/// as added, so that the same request may be repeated. Without any, the version is kept from being given up, as by each request.
#[utoipa::path(
    post, path = "/files/versions/{id}/entries", tag = "files", operation_id = "addFiles",
    params(("id" = String, Path, description = "The id of the version.", example = "6b0003bb686c8275d8015555")),
    request_body(content = NewFiles, content_type = "application/json"),
    responses(
        (status = 200, description = "Added.", body = FilesAdded),
        (status = 400, description = "A file is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such version that whoever asks has opened.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "The version takes no more files, or has another one at a path; or contents were not sent, or not by \
                whoever asks: `contents` has the first of them.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, body: AnyJson) -> Answer {
    let set = files::opened(&state, &who, &id).await?;
    let entries = files::entries(&body.0, state.store.now())?;
    let contents: Vec<ContentId> = entries.iter().map(|entry| entry.file).collect();
    let refused = files::refused(&state, &who, &contents).await?;
    if !refused.is_empty() {
        return Err(not_there(&refused));
    }
    let added = entries.len();
    changes::add_files(&state, set.id, entries).await?;
    Ok(js::ok(&json!({ "id": set.id.to_string(), "added": added })))
}

/// Contents that nobody has are like those of others: that they are there is not told.
fn not_there(contents: &[ContentId]) -> HttpError {
    let named: Vec<String> = contents.iter().take(NAMED).map(ToString::to_string).collect();
    let count = contents.len();
    let message = format!("{count} of the contents are not there, or not for you: send them first");
    HttpError::with_body(StatusCode::CONFLICT, json!({ "error": message, "contents": named }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_are_not_there_are_named() {
        let contents: Vec<ContentId> = (0..150_u32).map(|n| ContentId::of(&n.to_le_bytes())).collect();
        let error = not_there(&contents);
        assert_eq!(error.to_string(), "150 of the contents are not there, or not for you: send them first");
        let body: serde_json::Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!(body["contents"].as_array().map(Vec::len), Some(NAMED));
    }
}
