//! The contents that files of versions have.

use actix_web::HttpRequest;
use actix_web::web::{Data, Path, Payload};
use disbatch_core::files::{CHUNK_BYTES, ContentId, Put};
use disbatch_wire::files::{ChunkStored, ContentChunks, ContentFinished};

use crate::access::Who;
use crate::api::Answer;
use crate::changes::SentChunk;
use crate::error::HttpError;
use crate::openapi::{ChunkLength, ErrorBody, OfRead, OfWrite};
use crate::params::{Params, read_up_to};
use crate::state::State;
use crate::{changes, files, json, legacy};

fn named(id: &str) -> Result<ContentId, HttpError> {
    id.parse::<ContentId>().map_err(|error| HttpError::not_found(error.to_string()))
}

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
pub async fn get(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    files::may_store(&who)?;
    let content = named(&id)?;
    let may_name = files::refused(&state, &who, &[content]).await?.is_empty();
    let chunks = state.store.content_state(content, &files::sender(&who), may_name).await?;
    json::of(&files::of_chunks(&id, &chunks))
}

/// Stores a chunk of a content: 1 MiB, or what is left of it for the last one. Chunks may come in any order, several at once, and
/// again. An upload belongs to who sends it.
#[utoipa::path(
    put, path = "/files/contents/{sha256}/{n}", tag = "files", operation_id = "putChunk",
    params(
        ("sha256" = String, Path, description = "The SHA-256 of the whole content: 64 digits in lower case."),
        ("n" = u64, Path, description = "The number of the chunk, from 0 on: it begins at so many MiB.", example = 0),
        ChunkLength,
    ),
    request_body(content = String, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "Stored.", body = ChunkStored),
        (status = 400, description = "There is no such chunk, or it has the wrong size.", body = ErrorBody),
        (status = 404, description = "That is no SHA-256.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn put(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    of: Path<(String, String)>,
    body: Payload,
) -> Answer {
    // Whoever may not store anything is not read.
    files::may_store(&who)?;
    let (id, n) = of.into_inner();
    let content = named(&id)?;
    let n = n.parse::<u64>().map_err(|_| HttpError::bad_request("the number of a chunk is too large"))?;
    let length = length(&request)?;
    let bytes = read_up_to(body, usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)).await?;
    let chunk = SentChunk { of: content, length, n, bytes };
    let outcome = match changes::put_chunk(&state, &who, chunk).await? {
        Put::Stored => "stored",
        Put::Known => "known",
    };
    json::of(&ChunkStored { sha256: id, n, outcome })
}

/// How many bytes the whole content has, as the address says.
fn length(request: &HttpRequest) -> Result<u64, HttpError> {
    let params = Params::read("", b"", request.query_string())?;
    if let Some(param) = params.unknown(&["length"]) {
        return Err(HttpError::bad_param("unknown param", param));
    }
    let given = params.fields.get("length").and_then(legacy::integer);
    let length = given.and_then(|length| u64::try_from(length).ok());
    length.ok_or_else(|| HttpError::bad_request("length must be how many bytes the whole content has"))
}

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
pub async fn finish(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    files::may_store(&who)?;
    changes::finish_content(&state, &who, named(&id)?).await?;
    json::of(&ContentFinished { sha256: id.into_inner(), done: true })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_length_of_the_whole_is_in_the_address() {
        let of = |query: &str| length(&TestRequest::with_uri(&format!("/x{query}")).to_http_request()).ok();
        assert_eq!(of("?length=1048577"), Some(1_048_577));
        for wrong in [
            "",
            "?length=",
            "?length=-1",
            "?length=1.5",
            "?length=many",
            "?length=1&a=2",
            "?length=1&length=2",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
