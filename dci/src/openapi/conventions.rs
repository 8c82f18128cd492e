//! What many operations have in common, so that their annotations need not say it:
//! - what the address names is one of [`NAMED`], unless they tell of it;
//! - the failures of their kind are those of [`OfRead`] for GET, of [`OfSearch`] where that may be asked for wrongly (400), and those of
//!   [`OfWrite`] for other methods, unless they name a set; and what is to be shown, or to have something done with it, may not be there;
//! - a parameter may be wrong (400) where there is a body;
//! - a failure is told by an [`super::ErrorBody`], unless it has another body;
//! - one `content_type` may name several media types, with commas between them. Pages among them are text.

use std::{iter, mem};

use serde_json::{Map, Value, json};
use utoipa::openapi::Ref;
use utoipa::{IntoParams, IntoResponses};

use super::answers::{OfRead, OfSearch, OfWrite};
use crate::json::CONTENT_TYPE;

/// The body of a request that is JSON or a form.
pub const JSON_OR_FORM: &str = "application/json, application/x-www-form-urlencoded";

/// The body of an answer that is JSON, or a page for browsers.
pub const JSON_OR_PAGE: &str = "application/json, text/html";

/// What is named by the first part of an address that may be anything: the address up to there and beyond, what it is, an example
/// unless it is an id, and what is said where it is not there, if that is always the same. A longer one comes after those that it begins
/// with. For forms of pages the same is behind `/ui`.
const NAMED: [(&str, &str, &str, &str); 17] = [
    ("/arrays/{id}", "Its id.", "", "There is no such array."),
    ("/bulk/{id}", "Its id.", "", "There is no such job."),
    ("/calendars/{name}", "Its name.", "holidays", "There is no such calendar."),
    ("/callbacks/{id}", "The task's id.", "", ""),
    ("/files/contents/{sha256}", "The SHA-256 of the content: 64 digits in lower case.", "", ""),
    ("/files/versions/{id}", "The id of the version.", "6b0003bb686c8275d8015555", ""),
    ("/files/{name}", "The name of the set.", "data", "There is no such version."),
    ("/locks/{name}", "Its name.", "db", ""),
    ("/nodes/{node}", ID_OR_NAME, "worker1", "There is no such node."),
    ("/queues/{queue}", ID_OR_NAME, "mail", "There is no such queue."),
    ("/schedules/{id}", ID_OR_NAME, "nightly", "There is no such schedule."),
    ("/schedules/{id}/", "Its id, or its name.", "nightly", "There is no such schedule."),
    ("/subscriptions/{name}", "Its name.", "night imports", "There is no such subscription."),
    ("/tasks/{id}", "Its id.", "", "There is no such task."),
    ("/tasks/{queue}", ID_OR_NAME, "mail", ""),
    ("/tenants/{tenant}", "Its name.", "acme", ""),
    ("/workers/{name}", "The plugin's name.", "My::Report", "There is no such worker."),
];

const ID_OR_NAME: &str = "Its id if 24 hexadecimal digits, else its name.";

/// Completes the description of an operation.
pub fn complete(path: &str, method: &str, operation: &mut Value) {
    let path = path.strip_prefix("/ui").unwrap_or(path);
    let named = NAMED.into_iter().rfind(|(place, ..)| path.starts_with(place));
    let (place, what, example, absent) = named.unwrap_or_default();
    complete_parameters(place, (what, example), operation);
    let has_body = operation.get("requestBody").is_some();
    if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
        // Every set of failures has it.
        if !responses.contains_key("405") {
            let failures = match method {
                "get" if responses.contains_key("400") => OfSearch::responses(),
                "get" => OfRead::responses(),
                _ => OfWrite::responses(),
            };
            responses.extend(failures.into_iter().map(|(status, failure)| (status, json!(failure))));
            if method == "post" && has_body {
                responses.entry("400").or_insert_with(|| json!({ "description": "A parameter is wrong." }));
            }
            let is_looked_up = match method {
                "get" => true,
                // Perl Disbatch says 400 there.
                "delete" => place != "/queues/{queue}",
                _ => method == "post" && path != place,
            };
            if is_looked_up && !absent.is_empty() {
                responses.entry("404").or_insert_with(|| json!({ "description": absent }));
            }
        }
        for (status, response) in responses {
            complete_response(status, response);
        }
    }
    if let Some(content) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) {
        divide(content);
    }
}

fn complete_parameters(place: &str, (what, example): (&str, &str), operation: &mut Value) {
    let Some(name) = place.split(['{', '}']).nth(1) else { return };
    let told = operation.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
    if told.iter().any(|parameter| parameter["name"] == name) {
        return;
    }
    let mut parameter = json!({
        "name": name, "in": "path", "required": true, "schema": { "type": "string" }, "description": what,
    });
    if !example.is_empty() {
        parameter["example"] = example.into();
    }
    operation["parameters"] = iter::once(parameter).chain(told).collect();
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
