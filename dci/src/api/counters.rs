//! Counters of tasks, and their audit.

use actix_web::web::Data;
use disbatch_core::counters::Totals;
use disbatch_core::model::Queue;
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::Answer;
use crate::json::Dates;
use crate::openapi::{OfRead, OfWrite};
use crate::state::State;
use crate::{changes, json};

/// The counters of all queues by status, without the statuses -1 and 0, which are always counted; null for a queue that no
/// audit has come to yet. `audit` tells of the last audit of all queues: when it began, by how many tasks counters had
/// drifted and were corrected, how many queues it looked at, and for how many milliseconds it counted.
#[utoipa::path(
    get, path = "/counters", tag = "service", operation_id = "listCounters",
    responses(
        (
            status = 200, description = "The counters.", body = Value,
            example = json!({
                "audit": {"at": "2026-11-20T08:24:27", "corrected": 0, "counting_ms": 3, "queues": 1},
                "queues": [{"counters": {"-2": 17, "1": 5}, "id": "6b0003bb686c8275d70dc2f1", "name": "mail"}],
            }),
        ),
        OfRead,
    ),
)]
pub async fn list(state: Data<State>) -> Answer {
    let queues = state.store.list_queues().await?;
    let totals = state.store.read_counters().await?.unwrap_or_default();
    let audit = &totals.audit;
    let at = audit.at.map(|at| json::from_bson(&at.into(), Dates::Text));
    Ok(json::ok(&json!({
        "audit": at.map(|at| json!({
            "at": at, "corrected": audit.corrected, "queues": audit.queues, "counting_ms": audit.counting_ms,
        })),
        "queues": queues.iter().map(|queue| view(queue, &totals)).collect::<Vec<_>>(),
    })))
}

fn view(queue: &Queue, totals: &Totals) -> Value {
    let counters = totals.by_status(queue.id).map(|tasks| {
        let some = tasks.iter().filter(|(_, tasks)| **tasks != 0);
        some.map(|(status, tasks)| (status.to_string(), Value::from(*tasks))).collect::<Map<_, _>>()
    });
    json!({ "id": queue.id.to_string(), "name": queue.display_name(), "counters": counters })
}

/// Asks for an audit of all counters, which a DEN makes within seconds. `GET /counters` tells when it has.
#[utoipa::path(
    post, path = "/counters/audit", tag = "service", operation_id = "auditCounters",
    responses(
        (status = 200, description = "Asked for.", body = Object, example = json!({"asked": true})),
        OfWrite,
    ),
)]
pub async fn audit(state: Data<State>, who: Who) -> Answer {
    changes::audit_counters(&state, &who).await?;
    Ok(json::ok(&json!({ "asked": true })))
}
