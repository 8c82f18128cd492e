//! What people did, what a moment of the past was like, and counters of tasks with their audit.

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::counters::Totals;
use disbatch_core::model::Queue;
use disbatch_core::schedules::Zone;
use disbatch_wire::fields;
use disbatch_wire::history::{AuditEntry, AuditSearch, Moment, MomentSearch};
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{ErrorBody, OfRead, OfSearch, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{accept, audit, bulk, changes, json, moments, ui};

/// So many entries unless told otherwise.
const DEFAULT_LIMIT: i64 = 100;

/// Who did what to which object, when and from where, the latest first. Browsers get a page. All that is asked for must be
/// so. The next entries are those `.after` the `key` of the last one.
#[utoipa::path(
    get, path = "/audit", tag = "service", operation_id = "listAudit",
    params(AuditSearch),
    responses(
        (
            status = 200, content((Vec<AuditEntry> = "application/json"), (String = "text/html")),
            description = "The entries; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "A parameter is wrong, or the search takes too long.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn audit(request: HttpRequest, state: Data<State>, params: Result<Params, HttpError>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::audit::render(&state, &params.unwrap_or_default()).await));
    }
    let mut params = params?;
    params.only(fields::of::<AuditSearch>())?;
    audit::name_queue(&state.store, &mut params).await?;
    let limit = usize::try_from(bulk::limit(&params, DEFAULT_LIMIT)?).unwrap_or(usize::MAX);
    let found = state.store.find_audit(&audit::query(&params, limit, &Zone::utc())?).await?;
    let too_long = "the search takes too long: leave out a condition, or look for what is there more often";
    let found = found.ok_or_else(|| HttpError::bad_request(too_long))?;
    Ok(json::ok(&found.entries.iter().map(audit::view).collect()))
}

/// What ran and waited at a moment of the past, what limits held, and what happened around it: tasks that ended badly, nodes that came and went,
/// what people changed (for admins), and what schedules made, on one time line. Browsers get a page. Of nodes it is told to those who see all
/// queues.
///
/// It is told from what is kept anyway. What is not known, or was too much to read, is in `gaps`.
#[utoipa::path(
    get, path = "/moments", tag = "service", operation_id = "getMoment",
    params(MomentSearch),
    responses(
        (
            status = 200, content((Moment = "application/json"), (String = "text/html")),
            description = "What is known; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn moment(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::moment::render(&state, &who, &params.unwrap_or_default()).await));
    }
    let params = params?;
    params.only(fields::of::<MomentSearch>())?;
    let asked = moments::asked(&state, &who, &params, &Zone::utc()).await?;
    let past = state.store.moment(&asked.question).await?;
    json::of(&moments::view(&asked.question, &past, &ui::names::names(&asked.queues)))
}

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
pub async fn counters(state: Data<State>) -> Answer {
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
pub async fn audit_counters(state: Data<State>, who: Who) -> Answer {
    changes::audit_counters(&state, &who).await?;
    Ok(json::ok(&json!({ "asked": true })))
}
