//! `POST /delete-queue-json`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_core::model::Selector;
use serde_json::{Value, json};

use super::{queue_id, refused, required};
use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{DeleteQueue, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, legacy};

/// Deletes the queue `id`. Its tasks stay.
#[utoipa::path(
    post, path = "/delete-queue-json", tag = "Disbatch::Web::V3", operation_id = "deleteQueueJson",
    request_body(content(
        (DeleteQueue = "application/json"),
        (DeleteQueue = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, body = Value, description = "`[1, result]`"),
        (
            status = 400, body = Value,
            description = "`[0, message]`, or the result of the write with `error`.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let [id] = required(&params, ["id"]).ok_or_else(|| refused("id required"))?;
    let failed = |result: Value, message: String| {
        let result = legacy::with(legacy::with(result, "error", message), "success", 0);
        HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, result]))
    };
    let id = queue_id(id).map_err(|message| failed(json!({}), message))?;
    let deleted = changes::delete_queue(&state, &who, Selector::Id(id.0)).await?;
    let result = legacy::delete_result(deleted);
    if deleted == 0 {
        return Err(failed(result, format!("no queue '{id}'")));
    }
    Ok(json::ok(&json!([1, legacy::with(result, "success", 1)])))
}
