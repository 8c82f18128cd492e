//! Arrays, one file per operation.

pub mod cancel;
pub mod get;
pub mod list;
pub mod retry;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use disbatch_core::bulk::Action;
use serde_json::json;

use super::{Answer, task_action, then};
use crate::access::Who;
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
    if accept::wants_html(request) {
        return then::lead(done, &format!("/arrays/{id}"));
    }
    let job = done?;
    Ok(json::made(StatusCode::ACCEPTED, &format!("/bulk/{job}"), &json!({ "id": job })))
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
    let job = Box::pin(changes::act_on_array(state, who, array, (action, reason))).await?;
    let nothing = || HttpError::conflict(format!("the array has no element to {}", action.as_str()));
    Ok(job.ok_or_else(nothing)?.to_hex())
}
