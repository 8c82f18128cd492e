//! Admission: what becomes of whose new tasks.

use actix_web::web::Data;
use disbatch_wire::admission::{Admission, AdmissionChange, AdmissionLift, AdmissionLifted, AdmissionRule};
use serde_json::json;

use crate::access::Who;
use crate::admission::RuleState;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::Params;
use crate::state::State;
use crate::{admission, changes, json};

/// The rules that say whose new tasks are taken at the moment, and what each has come to: how many tasks of those that it is about
/// wait, are held or run, and whether it is safe to upgrade what works on them. Who may not see everything sees the rules for
/// all, and those for what they may see.
#[utoipa::path(
    get, path = "/admission", tag = "admission", operation_id = "listAdmission",
    responses((status = 200, description = "The rules; a page if `Accept` asks for HTML.", body = Admission, content_type = JSON_OR_PAGE)),
)]
pub async fn list(state: Data<State>, who: Who) -> Answer {
    let rules = admission::shown(&state, &who).await?;
    json::of(&Admission { rules: rules.iter().map(RuleState::view).collect() })
}

/// Says what becomes of new tasks: of all, of a queue, for a tenant, or of a user. `reject`: submissions are refused with 503. `pause`:
/// they are taken, and the tasks held until no rule holds them. `accept`: they are taken although a wider rule says
/// otherwise. What there is already is left alone. A scope has one rule; this takes the place of the one before.
///
/// The rule for the owner of a task decides; if there is none, the stricter one of those for its queue and its tenant; if there
/// is none either, the one for all.
#[utoipa::path(
    post, path = "/admission", tag = "admission", operation_id = "setAdmissionRule",
    request_body(content = AdmissionChange, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "The rule.", body = AdmissionRule),
        (status = 400, description = "A parameter is wrong, or there is no such queue."),
    ),
)]
pub async fn set(state: Data<State>, who: Who, params: Params) -> Answer {
    let rule = admission::new_rule(&state, &who, &params).await?;
    let scope = rule.scope.clone();
    changes::set_rule(&state, &who, rule).await?;
    let shown = admission::shown(&state, &who).await?;
    let made = shown.iter().find(|shown| shown.rule.scope == scope);
    // Somebody may have lifted it already.
    let absent = || Ok(json::ok(&json!({ "scope": scope.kind(), "value": scope.value() })));
    redirect::answer(&params, made.map_or_else(absent, |made| json::of(&made.view()))?)
}

/// Lifts the rule for a scope. Tasks that it held go on, unless another rule holds them too.
#[utoipa::path(
    delete, path = "/admission", tag = "admission", operation_id = "liftAdmissionRule",
    params(
        ("scope" = String, Query, description = "`all`, `queue`, `tenant` or `owner`.", example = "queue"),
        ("value" = Option<String>, Query, description = "A queue's name or id, a tenant, or a user's login name.", example = "mail"),
    ),
    responses(
        (status = 200, description = "Lifted.", body = AdmissionLifted),
        (status = 400, description = "A parameter is wrong, or there is no such queue."),
        (status = 404, description = "There is no rule for that."),
    ),
)]
pub async fn lift(state: Data<State>, who: Who, params: Params) -> Answer {
    let scope = admission::scope(&state, &who, params.given()?).await?;
    let released = changes::lift_rule(&state, &who, scope).await?;
    let released = released.ok_or_else(|| HttpError::not_found("there is no rule for that"))?;
    json::of(&AdmissionLifted { lifted: true, released })
}

/// Lifts a rule, and leads to the list of rules. HTML forms know no `DELETE`.
#[utoipa::path(
    post, path = "/ui/admission/lift", tag = "service", operation_id = "liftAdmissionRuleByForm",
    request_body(content = AdmissionLift, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 303, description = "Lifted; the list of rules is next."),
        (status = 400, description = "A parameter is wrong. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
        (status = 404, description = "There is no rule for that. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn lift_by_form(state: Data<State>, who: Who, params: Params) -> Answer {
    redirect::lead(lift(state, who, params).await, "/admission")
}
