//! `DELETE /admission`

use actix_web::web::Data;
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{AdmissionLifted, AdmissionScope, ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{admission, changes, json};

/// Lifts the rule for a scope. Tasks that it held go on, unless another rule holds them too.
#[utoipa::path(
    delete, path = "/admission", tag = "admission", operation_id = "liftAdmissionRule",
    params(AdmissionScope),
    responses(
        (status = 200, description = "Lifted.", body = AdmissionLifted),
        (status = 400, description = "A parameter is wrong, or there is no such queue.", body = ErrorBody),
        (status = 404, description = "There is no rule for that.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let released = lift(&state, &who, &params).await?;
    Ok(json::ok(&json!({ "lifted": true, "released": released })))
}

/// Lifts the rule that a request names. Returns how many tasks were released.
pub async fn lift(state: &State, who: &Who, params: &Params) -> Result<u64, HttpError> {
    params.only(&["scope", "value"])?;
    let scope = admission::scope(state, who, params).await?;
    let released = changes::lift_rule(state, who, scope).await?;
    released.ok_or_else(|| HttpError::not_found("there is no rule for that"))
}
