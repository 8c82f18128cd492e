//! `DELETE /files/:name`

use actix_web::web::{Data, Path};
use disbatch_core::accounts::Role;
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, FileSetDeleted, FileVersion, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, files, json as js};

/// Removes a file set with all of its versions, or the version that `.version` says. Tasks that have taken its files keep them.
#[utoipa::path(
    delete, path = "/files/{name}", tag = "files", operation_id = "deleteFileSet",
    params(("name" = String, Path, description = "The name of the set.", example = "data"), FileVersion),
    responses(
        (status = 200, description = "Removed.", body = FileSetDeleted),
        (status = 400, description = "The option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such version.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    Ok(js::ok(&delete(&state, &who, &name, &params).await?))
}

/// Removes what a request says. Returns the result as clients see it.
pub async fn delete(state: &State, who: &Who, name: &str, params: &Params) -> Result<Value, HttpError> {
    if let Some(param) = params.unknown(&[]) {
        return Err(HttpError::bad_param("unknown param", param));
    }
    let version = params.integer("version")?;
    let set = files::find(state, who, (name, version), Role::Submitter).await?;
    let deleted = changes::delete_files(state, who, files::named(name)?, version).await?;
    if deleted == 0 {
        // Somebody else was faster.
        return Err(files::not_found(name));
    }
    Ok(json!({ "name": set.name, "deleted": deleted }))
}
