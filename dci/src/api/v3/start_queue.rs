//! `POST /start-queue-json`

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::doc;
use disbatch_core::queue::new_queue_id;
use serde_json::{Value, json};

use super::{refused, required};
use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{OfWrite, StartQueue};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, legacy, values};

/// Creates a queue from `type` (its plugin) and `name`.
#[utoipa::path(
    post, path = "/start-queue-json", tag = "Disbatch::Web::V3", operation_id = "startQueueJson",
    request_body(content(
        (StartQueue = "application/json"),
        (StartQueue = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, body = Value, description = "`[1, id, result]`"),
        (
            status = 400, body = Value,
            description = "`[0, message]`, or the result of the write with `error`.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let [plugin, name] =
        required(&params, ["type", "name"]).ok_or_else(|| refused("type and name required"))?;
    let plugins = state.catalogue().await?;
    if !plugin.as_str().is_some_and(|plugin| plugins.allows(plugin)) {
        return Err(refused("unknown queue type"));
    }
    if !name.is_string() && !name.is_number() {
        return Err(refused("name must be a string"));
    }
    values::shown_as_written("name", name).map_err(|error| refused(&error.to_string()))?;
    let id = new_queue_id();
    let fields = doc! { "name": json::to_bson(name), "plugin": json::to_bson(plugin) };
    match changes::create_queue(&state, &who, id, fields).await {
        Ok(()) => {
            let result = legacy::with(legacy::insert_one_result(id.0), "success", 1);
            Ok(json::ok(&json!([1, json::oid(id.0), result])))
        }
        Err(error) => match error.write_failure() {
            Some(failure) if failure.is_duplicate_key() => {
                let result = legacy::with(legacy::duplicate_on_update(&failure), "success", 0);
                Err(HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, Value::Null, result])))
            }
            _ => Err(error.into()),
        },
    }
}
