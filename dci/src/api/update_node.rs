//! `POST /nodes/:node`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;
use serde_json::Value;

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, NodeChange, OfWrite, UpdateResult};
use crate::params::Params;
use crate::state::State;
use crate::{json, legacy};

/// Sets `maxthreads`: how many tasks may run on the node at once, null for no limit.
///
/// # Errors
/// A parameter is wrong, there is no such node, or the database cannot be reached.
#[utoipa::path(
    post, path = "/nodes/{node}", tag = "nodes", operation_id = "updateNode",
    params((
        "node" = String, Path, example = "worker1",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    request_body(content(
        (NodeChange = "application/json"),
        (NodeChange = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Changed.", body = UpdateResult),
        (status = 400, description = "A parameter is wrong, or there is no such node.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, name: Path<String>, params: Params) -> Answer {
    let maxthreads = maxthreads(&params)?;
    let updated = state.store.set_node_maxthreads(&Selector::parse(&name), json::to_bson(maxthreads)).await?;
    let result = legacy::update_result(updated);
    if updated.matched == 0 {
        let inner = result["MongoDB::UpdateResult"].clone();
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, legacy::with(result, "error", inner)));
    }
    Ok(json::ok(&result))
}

fn maxthreads(params: &Params) -> Result<&Value, HttpError> {
    if let Some(param) = params.unknown(&["maxthreads"]) {
        return Err(HttpError::bad_param("Invalid param", param));
    }
    let value = params.fields.get("maxthreads").ok_or_else(|| HttpError::bad_request("No params"))?;
    if value.is_null() || legacy::is_non_negative_integer(value) {
        Ok(value)
    } else {
        Err(HttpError::bad_request("maxthreads must be a non-negative integer or null"))
    }
}
