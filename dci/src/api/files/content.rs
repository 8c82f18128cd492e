//! `GET /files/:name/content/:path`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use disbatch_core::accounts::Role;
use disbatch_core::files::EntryPath;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::files;
use crate::openapi::{ErrorBody, FileVersion, OfSearch};
use crate::params::Params;
use crate::state::State;

/// A file of a version, the newest unless `.version` says another: all of it, or the bytes that the header `Range` asks for. Its
/// `ETag` is the SHA-256 of the file.
#[utoipa::path(
    get, path = "/files/{name}/content/{path}", tag = "files", operation_id = "getFile",
    params(
        ("name" = String, Path, description = "The name of the set.", example = "data"),
        ("path" = String, Path, description = "The path of the file in it, with its slashes.", example = "a/b.csv"),
        FileVersion,
    ),
    responses(
        (status = 200, description = "The file.", body = String, content_type = "application/octet-stream"),
        (status = 206, description = "A part of it.", body = String, content_type = "application/octet-stream"),
        (status = 304, description = "The client has this file already, as `If-None-Match` says."),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such file.", body = ErrorBody),
        (status = 416, description = "There is nothing of the range.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    of: Path<(String, String)>,
    params: Params,
) -> Answer {
    let (name, given) = of.into_inner();
    let set = files::find(&state, &who, (name.as_str(), params.integer("version")?), Role::Viewer).await?;
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
