//! The deprecated routes of the web extension `Disbatch::Web::V3`, as Disbatch 3 had them. Most answers are
//! arrays that begin with 1, or with 0 and what is wrong. Some refusals have status 200: clients of that age
//! look at the array only.

pub mod create_tasks;
pub mod create_tasks_from_query;
pub mod delete_queue;
pub mod queue_prototypes;
pub mod search_tasks;
pub mod set_queue_attr;
pub mod start_queue;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use disbatch_core::model::QueueId;
use serde_json::{Map, Value, json};

use crate::error::HttpError;
use crate::params::Params;
use crate::{json, legacy};

/// `[0, message]` with status 400.
fn refused(message: &str) -> HttpError {
    HttpError::with_body(StatusCode::BAD_REQUEST, json!([0, message]))
}

/// `[0, message]` with status 200.
fn declined(message: &str) -> HttpResponse {
    json::ok(&json!([0, message]))
}

/// An error whose message alone is for the client, at the place where clients look for it.
fn in_array(error: HttpError) -> HttpError {
    match error.status() {
        status @ (StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::FORBIDDEN) => {
            HttpError::with_body(status, json!([0, error.message()]))
        }
        _ => error, // Its message is not for the client alone.
    }
}

/// The parameters `names`, if Perl takes all of them for true.
fn required<'a, const N: usize>(params: &'a Params, names: [&str; N]) -> Option<[&'a Value; N]> {
    let values = names.map(|name| params.fields.get(name).filter(|value| legacy::is_true(Some(value))));
    let given: Vec<&Value> = values.into_iter().flatten().collect();
    given.try_into().ok()
}

/// An id that a client gave.
fn queue_id(value: &Value) -> Result<QueueId, String> {
    match value {
        Value::String(text) => text.parse().map_err(|error| format!("{error}")),
        other => Err(format!("{other} is not an id: expected 24 hexadecimal digits")),
    }
}

/// A value that may also be the text of its JSON.
fn parsed(name: &str, value: &Value) -> Result<Value, String> {
    match value {
        Value::String(text) => {
            crate::allowance::json(text).map_err(|error| format!("{name} is not JSON: {error}"))
        }
        value => Ok(value.clone()),
    }
}

/// An object that may also be the text of its JSON.
fn parsed_object(name: &str, value: &Value) -> Result<Map<String, Value>, String> {
    match parsed(name, value)? {
        Value::Object(map) => Ok(map),
        _ => Err(format!("{name} must be a JSON object")),
    }
}
