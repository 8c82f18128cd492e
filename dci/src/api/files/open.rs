//! `POST /files/:name`

use actix_web::HttpResponse;
use actix_web::web::{Data, Path};
use disbatch_core::accounts::Role;
use disbatch_core::files::{FilesError, SetName};

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, NewFileSet, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, files, json};

/// Opens a new version of a file set; the first one makes the set. Nobody sees it before it is committed, only who has opened it
/// adds files, and a day after that was last done it is given up.
#[utoipa::path(
    post, path = "/files/{name}", tag = "files", operation_id = "openFileSetVersion",
    params((
        "name" = String, Path, example = "data",
        description = "The name of the set: letters, digits, `.`, `_` and `-`, and neither `contents` nor `versions`.",
    )),
    request_body(content(
        (NewFileSet = "application/json"),
        (NewFileSet = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 201, description = "Open; `id` is what files are added to.", body = openapi::FileSetVersion),
        (status = 400, description = "The name or an option is wrong.", body = ErrorBody),
        (
            status = 409, body = ErrorBody,
            description = "The set belongs to another tenant. Who may not see all sets gets 403 instead.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    let name = name.parse::<SetName>().map_err(|error| HttpError::bad_request(error.to_string()))?;
    let new = files::new_set(&state, &who, &name, &params).await?;
    let opened = changes::open_files(&state, name, new).await;
    let set = opened.map_err(|error| match error {
        FilesError::OfAnotherTenant(_) if files::tenants(&who, Role::Viewer).is_some() => {
            HttpError::name_not_allowed()
        }
        other => other.into(),
    })?;
    let body = json::compact(&files::of_set(&set));
    Ok(HttpResponse::Created().content_type(json::CONTENT_TYPE).body(body))
}
