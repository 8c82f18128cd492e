//! `POST /workers/validate`

use serde_json::json;

use crate::api::{Answer, workers};
use crate::error::HttpError;
use crate::json as js;
use crate::openapi::{ErrorBody, NewWorker, OfFixed, WorkerCheck};
use crate::params::Params;

/// Tells whether a definition could be stored, and which plugin it makes. Nothing is stored.
#[utoipa::path(
    post, path = "/workers/validate", tag = "workers", operation_id = "validateWorker",
    request_body(content(
        (NewWorker = "application/json"),
        (NewWorker = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Whether it could; and the plugin, or what is wrong.", body = WorkerCheck),
        (status = 400, description = "There is no definition to be read.", body = ErrorBody),
        OfFixed,
    ),
)]
pub async fn handle(params: Params) -> Answer {
    let checked = workers::read(None, &params).and_then(|new| {
        let manifest = new.manifest().map_err(|error| HttpError::bad_request(error.to_string()))?;
        Ok((new.name, manifest))
    });
    Ok(js::ok(&match checked {
        Ok((name, manifest)) => json!({
            "valid": true,
            "name": name.as_str(),
            "engine": manifest.engine.as_str(),
            "plugin": serde_json::to_value(&manifest).unwrap_or_default(),
        }),
        Err(error) => json!({ "valid": false, "error": error.message() }),
    }))
}
