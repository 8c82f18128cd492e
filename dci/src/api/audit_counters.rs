//! `POST /counters/audit`

use actix_web::web::Data;
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::OfWrite;
use crate::state::State;
use crate::{changes, json};

/// Asks for an audit of all counters, which a DEN makes within seconds. `GET /counters` tells when it has.
#[utoipa::path(
    post, path = "/counters/audit", tag = "service", operation_id = "auditCounters",
    responses(
        (status = 200, description = "Asked for.", body = Object, example = json!({"asked": true})),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who) -> Answer {
    changes::audit_counters(&state, &who).await?;
    Ok(json::ok(&json!({ "asked": true })))
}
