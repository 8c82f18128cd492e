//! `POST /counters/audit`

use actix_web::web::Data;
use serde_json::json;

use crate::api::Answer;
use crate::json;
use crate::openapi::OfWrite;
use crate::state::State;

/// Asks for an audit of all counters, which a DEN makes within seconds. `GET /counters` tells when it has.
///
/// # Errors
/// The database cannot be reached.
#[utoipa::path(
    post, path = "/counters/audit", tag = "service", operation_id = "auditCounters",
    responses(
        (status = 200, description = "Asked for.", body = Object, example = json!({"asked": true})),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>) -> Answer {
    state.store.ask_for_audit().await?;
    Ok(json::ok(&json!({ "asked": true })))
}
