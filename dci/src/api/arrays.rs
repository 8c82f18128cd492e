//! Arrays, one file per operation.

pub mod cancel;
pub mod get;
pub mod list;
pub mod rerun;
pub mod retry;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use disbatch_core::arrays::Array;
use disbatch_core::bulk::Action;
use serde_json::{Value, json};

use super::{Answer, redirect, task_action};
use crate::access::Who;
use crate::changes::OfElements;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::{accept, arrays, changes, json};

/// Has a bulk job act on the elements of an array. Browsers go to the page of the array.
async fn act(
    request: &HttpRequest,
    state: &State,
    who: &Who,
    (id, params): (&str, &Params),
    action: Action,
) -> Answer {
    let done = begin(state, who, (id, params), action).await;
    answer(request, id, done.map(|job| json!({ "id": job })))
}

/// The id of the job, for browsers the page of the array.
fn answer(request: &HttpRequest, id: &str, done: Result<Value, HttpError>) -> Answer {
    if accept::wants_html(request) {
        return redirect::lead(done, &format!("/arrays/{id}"));
    }
    let job = done?;
    let id = job.get("id").and_then(Value::as_str).unwrap_or_default();
    Ok(json::made(StatusCode::ACCEPTED, &format!("/bulk/{id}"), &job))
}

/// Returns the id of the job.
async fn begin(
    state: &State,
    who: &Who,
    (id, params): (&str, &Params),
    action: Action,
) -> Result<String, HttpError> {
    let reason = task_action::reason(params)?;
    let array = arrays::find(state, id).await?;
    let what = OfElements { action, reason, succeeded: false, rerun: None };
    act_on(state, who, array, what).await
}

async fn act_on(state: &State, who: &Who, array: Array, what: OfElements) -> Result<String, HttpError> {
    let action = what.action;
    let job = Box::pin(changes::act_on_array(state, who, array, what)).await?;
    let nothing = || HttpError::conflict(format!("the array has no element to {}", action.as_str()));
    Ok(job.ok_or_else(nothing)?.to_hex())
}
