//! What many operations have in common, so that their annotations need not say it:
//! - the failures of their kind are those of [`OfRead`] for GET and those of [`OfWrite`] for other methods, unless they name a set;
//! - a failure is told by an [`super::ErrorBody`], unless it has another body;
//! - one `content_type` may name several media types, with commas between them. Pages among them are text.

use std::mem;

use serde_json::{Map, Value, json};
use utoipa::openapi::Ref;
use utoipa::{IntoParams, IntoResponses};

use super::answers::{OfRead, OfWrite};
use crate::json::CONTENT_TYPE;

/// The body of a request that is JSON or a form.
pub const JSON_OR_FORM: &str = "application/json, application/x-www-form-urlencoded";

/// The body of an answer that is JSON, or a page for browsers.
pub const JSON_OR_PAGE: &str = "application/json, text/html";

/// Completes the description of an operation.
pub fn complete(method: &str, operation: &mut Value) {
    if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
        // Every set of failures has it.
        if !responses.contains_key("405") {
            let failures = if method == "get" { OfRead::responses() } else { OfWrite::responses() };
            responses.extend(failures.into_iter().map(|(status, failure)| (status, json!(failure))));
        }
        for (status, response) in responses {
            complete_response(status, response);
        }
    }
    if let Some(content) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) {
        divide(content);
    }
}

fn complete_response(status: &str, response: &mut Value) {
    let is_failure = status >= "400";
    if is_failure && response.get("content").is_none() {
        response["content"] = json!({ CONTENT_TYPE: {} });
    }
    let Some(content) = response.get_mut("content").and_then(Value::as_object_mut) else { return };
    divide(content);
    if is_failure
        && let Some(body) = content.get_mut(CONTENT_TYPE)
        && body.get("schema").is_none()
    {
        body["schema"] = json!(Ref::from_schema_name("ErrorBody"));
    }
}

/// Has each of several media types by itself.
fn divide(content: &mut Map<String, Value>) {
    for (kinds, body) in mem::take(content) {
        for kind in kinds.split(", ") {
            let is_page = kind == "text/html";
            let body = if is_page { json!({ "schema": { "type": "string" } }) } else { body.clone() };
            content.insert(kind.to_owned(), body);
        }
    }
}

/// The queue in an address.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct QueuePath {
    /// Its id if 24 hexadecimal digits, else its name.
    #[param(example = "mail")]
    queue: String,
}

/// The schedule in an address.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct SchedulePath {
    /// Its id if 24 hexadecimal digits, else its name.
    #[param(example = "nightly")]
    id: String,
}

/// The node in an address.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct NodePath {
    /// Its id if 24 hexadecimal digits, else its name.
    #[param(example = "worker1")]
    node: String,
}

/// The part of a task's output that is asked for.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct OutputRange {
    /// One range of bytes: `bytes=0-99`, `bytes=100-`, or `bytes=-100` for the last ones.
    #[param(rename = "Range", example = "bytes=-1000")]
    range: Option<String>,
}

/// The output of a task, or a part of it.
#[derive(IntoResponses)]
pub enum Output {
    /// The output; `application/octet-stream` if it is stored and no UTF-8.
    #[response(status = 200, content_type = "text/plain, application/octet-stream")]
    Whole(String),
    /// The range, or what there is of it. The total in `Content-Range` is `*` of a running task.
    #[response(status = 206, content_type = "text/plain, application/octet-stream")]
    Range(String),
    /// An option is wrong.
    #[response(status = 400)]
    WrongOption,
    /// There is no such task, or no such attempt.
    #[response(status = 404)]
    NoSuchAttempt,
    /// There is nothing of this range.
    #[response(status = 416)]
    NoSuchRange,
}

/// The events.
#[derive(IntoResponses)]
#[response(status = 200, content_type = "text/event-stream")]
pub struct EventStream(String);
