//! File sets: their versions, files of these, and the contents that they have.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use disbatch_core::accounts::Role;
use disbatch_core::files::{
    CHUNK_BYTES, Committed, ContentId, EntryPath, FilesError, Put, SetName, SetState,
};
use disbatch_wire::files::{
    ChunkLength, ChunkStored, ContentChunks, ContentFinished, FileSearch, FileSetDeleted, FileSetPage,
    FileSetSearch, FileSetSummary, FileSetVersion, FileVersion, FilesAdded, NewFileSet, NewFiles,
};
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::changes::SentChunk;
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::{AnyJson, Params, read_up_to};
use crate::state::State;
use crate::{changes, files, json, legacy};

/// The file sets in the order of their names, each as its newest version. Browsers get a page. Only those of tenants that whoever
/// asks may see; those of no tenant are for viewers of everything.
#[utoipa::path(
    get, path = "/files", tag = "files", operation_id = "listFileSets",
    params(FileSetSearch),
    responses(
        (status = 200, description = "The sets; a page if `Accept` asks for HTML.", body = Vec<FileSetSummary>, content_type = JSON_OR_PAGE),
        (status = 400, description = "An option is wrong."),
    ),
)]
pub async fn list(state: Data<State>, who: Who, params: Params) -> Answer {
    let sets = state.store.filesets(&files::query(&who, &params)?).await?;
    json::of(&sets.iter().map(files::of_summary).collect::<Vec<_>>())
}

/// A version of a file set, the newest unless `.version` says another, with its files page by page in the order of the bytes of
/// their paths, and the versions that there are. Browsers get a page.
#[utoipa::path(
    get, path = "/files/{name}", tag = "files", operation_id = "getFileSet",
    params(FileSearch),
    responses(
        (status = 200, description = "The version with files; a page if `Accept` asks for HTML.", body = FileSetPage,
            content_type = JSON_OR_PAGE),
        (status = 400, description = "An option is wrong."),
    ),
)]
pub async fn get(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    let page = files::page(&state, &who, &name, &params).await?;
    json::of(&files::of_page(&page))
}

/// Opens a new version of a file set; the first one makes the set. Nobody sees it before it is committed, only who has opened it
/// adds files, and a day after that was last done it is given up.
#[utoipa::path(
    post, path = "/files/{name}", tag = "files", operation_id = "openFileSetVersion",
    params((
        "name" = String, Path, example = "data",
        description = "The name of the set: letters, digits, `.`, `_` and `-`, and neither `contents` nor `versions`.",
    )),
    request_body(content = NewFileSet, content_type = JSON_OR_FORM),
    responses(
        (status = 201, description = "Open; `id` is what files are added to.", body = FileSetVersion),
        (status = 400, description = "The name or an option is wrong."),
        (status = 409, description = "The set belongs to another tenant. Who may not see all sets gets 403 instead."),
    ),
)]
pub async fn open(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    let name = name.parse::<SetName>().map_err(|error| HttpError::bad_request(error.to_string()))?;
    let new = files::new_set(&state, &who, &name, &params).await?;
    let opened = changes::open_files(&state, name, new).await;
    let set = opened.map_err(|error| match error {
        FilesError::OfAnotherTenant(_) if files::tenants(&who, Role::Viewer).is_some() => {
            HttpError::name_not_allowed()
        }
        other => other.into(),
    })?;
    let body = json::compact(&json::value_of(&files::of_set(&set))?);
    Ok(HttpResponse::Created().content_type(json::CONTENT_TYPE).body(body))
}

/// So many contents that are missing are named.
const NAMED: usize = 100;

/// Adds files to a version that whoever asks has opened: up to 1,000 at once. Their contents must have been sent by the same
/// user, or be in a version that this user may read. A file that is there already, with the same content, size and mode, counts
/// as added, so that the same request may be repeated. Without any, the version is kept from being given up, as by each request.
#[utoipa::path(
    post, path = "/files/versions/{id}/entries", tag = "files", operation_id = "addFiles",
    request_body = NewFiles,
    responses(
        (status = 200, description = "Added.", body = FilesAdded),
        (status = 400, description = "A file is wrong."),
        (status = 404, description = "There is no such version that whoever asks has opened."),
        (status = 409, description = "The version takes no more files, or has another one at a path; or contents were not sent, or not by \
            whoever asks: `contents` has the first of them."),
    ),
)]
pub async fn add(state: Data<State>, who: Who, id: Path<String>, body: AnyJson) -> Answer {
    let set = files::opened(&state, &who, &id).await?;
    let entries = files::entries(body.0, state.store.now())?;
    let contents: Vec<ContentId> = entries.iter().map(|entry| entry.file).collect();
    let refused = files::refused(&state, &who, &contents).await?;
    if !refused.is_empty() {
        return Err(not_there(&refused));
    }
    let added = entries.len() as u64;
    changes::add_files(&state, set.id, entries).await?;
    json::of(&FilesAdded { id: set.id.to_string(), added })
}

/// Contents that nobody has are like those of others: that they are there is not told.
fn not_there(contents: &[ContentId]) -> HttpError {
    let named: Vec<String> = contents.iter().take(NAMED).map(ToString::to_string).collect();
    let count = contents.len();
    let message = format!("{count} of the contents are not there, or not for you: send them first");
    HttpError::with_body(StatusCode::CONFLICT, json!({ "error": message, "contents": named }))
}

/// Makes a version done that whoever asks has opened: it is shown from then on, and does not change any more. May be repeated.
#[utoipa::path(
    post, path = "/files/versions/{id}/commit", tag = "files", operation_id = "commitFileSetVersion",
    responses(
        (status = 200, description = "Done.", body = FileSetVersion),
        (status = 400, description = "It has too many files."),
        (status = 404, description = "There is no such version that whoever asks has opened."),
        (status = 409, description = "Contents of its files are gone, or have another size: `contents` has the first of them. When they \
            are sent again, it may be committed."),
    ),
)]
pub async fn commit(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    let set = files::opened(&state, &who, &id).await?;
    if set.state == SetState::Done {
        return json::of(&files::of_set(&set));
    }
    match changes::commit_files(&state, &who, set.id).await? {
        Committed::Done(done) => json::of(&files::of_set(&done)),
        Committed::Incomplete(missing) => {
            let named: Vec<String> = missing.iter().map(ToString::to_string).collect();
            let message =
                "contents of its files are missing, or have another size than the files: send them again";
            let body = json!({ "error": message, "contents": named });
            Err(HttpError::with_body(StatusCode::CONFLICT, body))
        }
    }
}

/// A file of a version, the newest unless `.version` says another: all of it, or the bytes that the header `Range` asks for. Its
/// `ETag` is the SHA-256 of the file.
#[utoipa::path(
    get, path = "/files/{name}/content/{path}", tag = "files", operation_id = "getFile",
    params(
        ("path" = String, Path, description = "The path of the file in it, with its slashes.", example = "a/b.csv"),
        FileVersion,
    ),
    responses(
        (status = 200, description = "The file.", body = String, content_type = "application/octet-stream"),
        (status = 206, description = "A part of it.", body = String, content_type = "application/octet-stream"),
        (status = 304, description = "The client has this file already, as `If-None-Match` says."),
        (status = 400, description = "An option is wrong."),
        (status = 404, description = "There is no such file."),
        (status = 416, description = "There is nothing of the range."),
    ),
)]
pub async fn content(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    of: Path<(String, String)>,
    params: Params,
) -> Answer {
    let (name, given) = of.into_inner();
    let FileVersion { version } = params.options()?;
    let set = files::find(&state, &who, (name.as_str(), version), Role::Viewer).await?;
    let none = || {
        let version = set.version;
        HttpError::not_found(format!("no file {given:?} in version {version} of the file set '{name}'"))
    };
    // What is no path leads nowhere.
    let path: EntryPath = given.parse().map_err(|_| none())?;
    let entry = state.store.fileset_entry(&set, path.as_str()).await?.ok_or_else(none)?;
    let content = state.store.find_content(entry.file).await?;
    let content =
        content.ok_or_else(|| HttpError::internal("a version names a content that is not there"))?;
    let (_, file_name) = path.folders_and_name();
    Ok(files::respond(&request, &state.store, content, file_name))
}

/// Removes a file set with all of its versions, or the version that `.version` says. Tasks that have taken its files keep them.
#[utoipa::path(
    delete, path = "/files/{name}", tag = "files", operation_id = "deleteFileSet",
    params(FileVersion),
    responses(
        (status = 200, description = "Removed.", body = FileSetDeleted),
        (status = 400, description = "The option is wrong."),
    ),
)]
pub async fn remove(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    let FileVersion { version } = params.search()?;
    let set = files::find(&state, &who, (name.as_str(), version), Role::Submitter).await?;
    let deleted = changes::delete_files(&state, &who, files::named(&name)?, version).await?;
    if deleted == 0 {
        // Somebody else was faster.
        return Err(files::not_found(&name));
    }
    json::of(&FileSetDeleted { name: set.name, deleted })
}

fn content_id(id: &str) -> Result<ContentId, HttpError> {
    id.parse::<ContentId>().map_err(|error| HttpError::not_found(error.to_string()))
}

/// Which chunks of a content whoever asks still has to send. A content that this user may not name, as others have it, is as if
/// nobody had it. Asking for an upload keeps it from being given up, which is done a day after it was last touched.
#[utoipa::path(
    get, path = "/files/contents/{sha256}", tag = "files", operation_id = "getContent",
    responses(
        (status = 200, description = "What is there.", body = ContentChunks),
        (status = 404, description = "That is no SHA-256."),
    ),
)]
pub async fn content_state(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    files::may_store(&who)?;
    let content = content_id(&id)?;
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
        (status = 400, description = "There is no such chunk, or it has the wrong size."),
        (status = 404, description = "That is no SHA-256."),
    ),
)]
pub async fn put_chunk(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    of: Path<(String, String)>,
    body: Payload,
) -> Answer {
    // Whoever may not store anything is not read.
    files::may_store(&who)?;
    let (id, n) = of.into_inner();
    let content = content_id(&id)?;
    let n = n.parse::<u64>().map_err(|_| HttpError::bad_request("the number of a chunk is too large"))?;
    let length = content_length(&request)?;
    let bytes = read_up_to(body, usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)).await?;
    let chunk = SentChunk { of: content, length, n, bytes };
    let outcome = match changes::put_chunk(&state, &who, chunk).await? {
        Put::Stored => "stored",
        Put::Known => "known",
    };
    json::of(&ChunkStored { sha256: id, n, outcome })
}

/// How many bytes the whole content has, as the address says.
fn content_length(request: &HttpRequest) -> Result<u64, HttpError> {
    let ChunkLength { length } = Params::read("", b"", request.query_string())?.search()?;
    let given = length.as_ref().and_then(legacy::integer);
    let length = given.and_then(|length| u64::try_from(length).ok());
    length.ok_or_else(|| HttpError::bad_request("length must be how many bytes the whole content has"))
}

/// Makes a content of what whoever asks has sent: all of it is read back, and its SHA-256 is compared. May be repeated. Without a
/// version that has it, it goes away after a day.
#[utoipa::path(
    post, path = "/files/contents/{sha256}/finish", tag = "files", operation_id = "finishContent",
    responses(
        (status = 200, description = "It is there.", body = ContentFinished),
        (status = 404, description = "Nothing of it was sent, or that is no SHA-256."),
        (status = 409, description = "Chunks are missing: `missing` says which."),
        (status = 422, description = "What was sent has another SHA-256. It was thrown away, and has to be sent again from the start."),
    ),
)]
pub async fn finish_content(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    files::may_store(&who)?;
    changes::finish_content(&state, &who, content_id(&id)?).await?;
    json::of(&ContentFinished { sha256: id.into_inner(), done: true })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn contents_that_are_not_there_are_named() {
        let contents: Vec<ContentId> = (0..150_u32).map(|n| ContentId::of(&n.to_le_bytes())).collect();
        let error = not_there(&contents);
        assert_eq!(error.to_string(), "150 of the contents are not there, or not for you: send them first");
        let body: serde_json::Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!(body["contents"].as_array().map(Vec::len), Some(NAMED));
    }

    #[test]
    fn the_length_of_the_whole_is_in_the_address() {
        let of = |query: &str| {
            content_length(&TestRequest::with_uri(&format!("/x{query}")).to_http_request()).ok()
        };
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
