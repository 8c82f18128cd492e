//! `POST /queues/:queue`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;
use serde_json::{Value, json};

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite, QueueChange, UpdateResult};
use crate::params::Params;
use crate::state::State;
use crate::{json, legacy};

/// What may be changed.
const FIELDS: [&str; 3] = ["name", "plugin", "threads"];

/// Changes `name`, `plugin` or `threads` of a queue. Values are stored as given, text as text.
///
/// # Errors
/// A parameter is wrong, there is no such queue, the new name is taken, or the database cannot be reached.
#[utoipa::path(
    post, path = "/queues/{queue}", tag = "queues", operation_id = "updateQueue",
    params((
        "queue" = String, Path, example = "mail",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    request_body(content(
        (QueueChange = "application/json"),
        (QueueChange = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Changed.", body = UpdateResult),
        (
            status = 400, body = ErrorBody,
            description = "A parameter is wrong, there is no such queue, or the new name is taken.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, name: Path<String>, params: Params) -> Answer {
    check(&state, &params)?;
    let fields = json::to_document(&params.fields);
    let updated = match state.store.update_queue(&Selector::parse(&name), fields).await {
        Ok(updated) => updated,
        Err(error) => {
            return Err(match error.write_failure() {
                Some(failure) if failure.is_duplicate_key() => {
                    HttpError::with_body(StatusCode::BAD_REQUEST, legacy::duplicate_on_update(&failure))
                }
                _ => error.into(),
            });
        }
    };
    let result = legacy::update_result(updated);
    if updated.matched == 0 {
        let body = legacy::with(result, "error", format!("no queue '{name}'"));
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    Ok(json::ok(&result))
}

fn check(state: &State, params: &Params) -> Result<(), HttpError> {
    if params.fields.is_empty() {
        return Err(HttpError::bad_request("no params"));
    }
    if let Some(param) = params.unknown(&FIELDS) {
        return Err(HttpError::bad_param("unknown param", param));
    }
    for (field, value) in &params.fields {
        match field.as_str() {
            "threads" if !legacy::is_non_negative_integer(value) => {
                return Err(HttpError::bad_request("threads must be a non-negative integer"));
            }
            "name" if !is_name(value) => return Err(HttpError::bad_request("name must be a string")),
            "plugin" if !value.as_str().is_some_and(|plugin| state.allows_plugin(plugin)) => {
                let body = json!({ "error": "unknown plugin", "plugin": value });
                return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
            }
            _ => {} // Only the three fields get here, with a value that they take.
        }
    }
    Ok(())
}

/// Perl takes numbers for strings, and "0" for no name.
fn is_name(value: &Value) -> bool {
    (value.is_string() || value.is_number()) && legacy::is_true(Some(value))
}
