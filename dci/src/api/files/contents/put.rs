//! `PUT /files/contents/:sha256/:n`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path, Payload};
use disbatch_core::files::{CHUNK_BYTES, Put};
use serde_json::json;

use super::named;
use crate::access::Who;
use crate::api::Answer;
use crate::changes::{self, SentChunk};
use crate::error::HttpError;
use crate::openapi::{ChunkLength, ChunkStored, ErrorBody, OfWrite};
use crate::params::{Params, read_up_to};
use crate::state::State;
use crate::{files, json as js, legacy};

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
pub async fn handle(
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
    Ok(js::ok(&json!({ "sha256": id, "n": n, "outcome": outcome })))
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
