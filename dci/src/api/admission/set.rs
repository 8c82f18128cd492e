//! `POST /admission`

use actix_web::web::Data;
use serde_json::json;

use crate::access::Who;
use crate::admission::Shown;
use crate::api::{Answer, then};
use crate::openapi::{AdmissionChange, AdmissionRule, ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{admission, changes, json};

/// Says what becomes of new tasks: of all, of a queue, for a tenant, or of a user. `reject`: submissions are refused with 503. `pause`:
/// they are taken, and the tasks held until no rule holds them. `accept`: they are taken although a wider rule says
/// otherwise. What there is already is left alone. A scope has one rule; this takes the place of the one before.
///
/// The rule for the owner of a task decides; if there is none, the stricter one of those for its queue and its tenant; if there
/// is none either, the one for all.
#[utoipa::path(
    post, path = "/admission", tag = "admission", operation_id = "setAdmissionRule",
    request_body(content(
        (AdmissionChange = "application/json"), (AdmissionChange = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "The rule.", body = AdmissionRule),
        (status = 400, description = "A parameter is wrong, or there is no such queue.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    then::or_page(then::is_form(&params), set(&state, &who, &params).await)
}

async fn set(state: &State, who: &Who, params: &Params) -> Answer {
    let rule = admission::new_rule(state, who, params).await?;
    let scope = rule.scope.clone();
    changes::set_rule(state, who, rule).await?;
    let shown = admission::shown(state, who).await?;
    let made = shown.iter().find(|shown| shown.rule.scope == scope);
    // Somebody may have lifted it already.
    let absent = || json!({ "scope": scope.kind(), "value": scope.value() });
    then::answer(params, json::ok(&made.map_or_else(absent, Shown::json)))
}
