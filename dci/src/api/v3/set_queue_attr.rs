//! `POST /set-queue-attr-json`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::doc;
use disbatch_core::model::Selector;
use serde_json::{Value, json};

use super::queue_id;
use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{OfWrite, QueueAttribute};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, legacy};

/// Sets the attribute `attr`, which can only be `threads`, of the queue `queueid` to `value`.
#[utoipa::path(
    post, path = "/set-queue-attr-json", tag = "Disbatch::Web::V3", operation_id = "setQueueAttrJson",
    request_body(content(
        (QueueAttribute = "application/json"),
        (QueueAttribute = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, body = Value, description = "The result of the write, with `success`."),
        (
            status = 400, body = Value,
            description = "`[0, message]`, or the result of the write with `error`.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let given = |name: &str, article: &str| {
        let value = params.fields.get(name).filter(|value| !value.is_null() && value.as_str() != Some(""));
        value.ok_or_else(|| failed(json!({}), format!("You must supply {article} {name}")))
    };
    let (id, attr, value) = (given("queueid", "a")?, given("attr", "an")?, given("value", "a")?);
    if attr != "threads" {
        return Err(failed(json!({}), "Invalid attr".to_owned()));
    }
    if !legacy::is_non_negative_integer(value) {
        return Err(failed(json!({}), "threads must be a non-negative integer".to_owned()));
    }
    let id = queue_id(id).map_err(|message| failed(json!({}), message))?;
    let fields = doc! { "threads": json::to_bson(value) };
    let updated = changes::update_queue(&state, &who, Selector::Id(id.0), fields, Vec::new()).await?;
    let result = legacy::update_result(updated);
    if updated.matched == 0 {
        return Err(failed(result, format!("no queue '{id}'")));
    }
    Ok(json::ok(&legacy::with(result, "success", 1)))
}

fn failed(result: Value, message: String) -> HttpError {
    let result = legacy::with(legacy::with(result, "error", message), "success", 0);
    HttpError::with_body(StatusCode::BAD_REQUEST, result)
}
