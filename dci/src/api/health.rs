//! Whether this server is there, the database answers it, and all is well: for load balancers, monitoring systems and people.

use std::collections::BTreeMap;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{Bson, DateTime, Document};
use disbatch_core::balance::BalanceDocument;
use disbatch_core::health;
use disbatch_core::model::whole_number;
use disbatch_core::store::StoreError;
use disbatch_wire::doctor::Diagnosis;
use serde_json::{Value, json};

use crate::api::Answer;
use crate::openapi::{OfAnybody, OfRead};
use crate::state::State;
use crate::{doctor, json, ui};

const PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Whether an address is one of these: who asks there knows this server by any name, its address for instance.
pub fn is_at(path: &str) -> bool {
    PATHS.contains(&path)
}

/// Whether this server is there. The database is not asked.
#[utoipa::path(
    get, path = "/healthz", tag = "service", operation_id = "getHealth",
    responses((status = 200, description = "It is: `ok`.", body = String, content_type = "text/plain"), OfAnybody),
)]
pub async fn alive() -> HttpResponse {
    plain(StatusCode::OK, health::ALIVE.to_owned())
}

/// Whether this server is ready: the database has answered it within the last 30 s. It is asked once a second at most, however many
/// want to know.
#[utoipa::path(
    get, path = "/readyz", tag = "service", operation_id = "getReadiness",
    responses(
        (status = 200, description = "It is: `ready`.", body = String, content_type = "text/plain"),
        (status = 503, description = "For how long the database has not answered.", body = String, content_type = "text/plain"),
        OfAnybody,
    ),
)]
pub async fn ready(state: Data<State>) -> HttpResponse {
    match state.looks.unready(&state.store).await {
        None => plain(StatusCode::OK, health::READY.to_owned()),
        Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> HttpResponse {
    HttpResponse::build(status).content_type("text/plain; charset=utf-8").body(text)
}

/// Checks whether all is well: the database and this server's rights in it, indexes, disk, clocks, nodes and their releases, plugins, queues that no
/// node serves, schedules that are late, users. Each finding says what to do. Nothing reads tasks, so it may be asked at any time.
#[utoipa::path(
    get, path = "/doctor", tag = "service", operation_id = "diagnose",
    responses((status = 200, description = "What was found.", body = Diagnosis), OfRead),
)]
pub async fn diagnose(state: Data<State>) -> Answer {
    json::of(&doctor::diagnose(&state).await?)
}

/// A node or `QueueBalance` that has not been heard of for more seconds does not run.
const STALE_SECONDS: i64 = 60;

/// Whether nodes and `QueueBalance` run, in the words of monitoring systems: `OK`, `WARNING`, `CRITICAL`.
#[utoipa::path(
    get, path = "/monitoring", tag = "service", operation_id = "monitor",
    responses(
        (
            status = 200, description = "The state of both.", body = Value,
            example = json!({
                "disbatch": {
                    "status": "OK", "message": "Disbatch is running on one or more nodes",
                    "nodes": {"fresh": {"worker1": 1}},
                },
                "queuebalance": {"status": "OK", "message": "queuebalance disabled"},
            }),
        ),
        OfRead,
    ),
)]
pub async fn monitoring(state: Data<State>) -> Answer {
    Ok(json::ok(&find(&state).await?))
}

pub async fn find(state: &State) -> Result<Value, StoreError> {
    if !state.monitoring {
        let disabled = check("OK", "monitoring disabled");
        return Ok(json!({ "disbatch": disabled, "queuebalance": disabled }));
    }
    let now = state.store.now();
    let nodes = state.store.list_nodes().await?;
    let balance = if state.balance.enabled.0 {
        queuebalance(state.store.balance_document().await?.unwrap_or_default(), now)
    } else {
        check("OK", "queuebalance disabled")
    };
    Ok(json!({ "disbatch": disbatch(&nodes, now), "queuebalance": balance }))
}

fn check(status: &str, message: &str) -> Value {
    json!({ "message": message, "status": status })
}

fn disbatch(nodes: &[Document], now: DateTime) -> Value {
    let (mut fresh, mut stale) = (BTreeMap::new(), BTreeMap::new());
    for node in nodes {
        let age = age(node.get("timestamp").and_then(seen), now);
        let group = if age > STALE_SECONDS { &mut stale } else { &mut fresh };
        group.insert(ui::plain(node.get("node")), age);
    }
    let mut result = match (fresh.is_empty(), stale.is_empty()) {
        (true, true) => return check("WARNING", "No Disbatch nodes found"),
        (true, false) => check("CRITICAL", "No active Disbatch nodes found"),
        (false, _) => check("OK", "Disbatch is running on one or more nodes"),
    };
    result["nodes"] = json!({ "fresh": fresh });
    if !stale.is_empty() {
        result["nodes"]["stale"] = json!(stale);
    }
    result
}

fn queuebalance(found: BalanceDocument, now: DateTime) -> Value {
    let message = found.message.unwrap_or_default();
    // A failure that it has reported itself says more than that it is gone.
    if found.status.as_deref() == Some("CRITICAL") {
        return check("CRITICAL", &message);
    }
    let Some(last) = found.timestamp else {
        return check("CRITICAL", "queuebalanced not running: it has not run yet");
    };
    let age = age(Some(last), now);
    if age > STALE_SECONDS {
        return check("CRITICAL", &format!("queuebalanced not running for {age}s"));
    }
    match found.status.as_deref() {
        Some(status @ ("OK" | "WARNING")) => check(status, &message),
        status => {
            let status = status.unwrap_or_default();
            check("CRITICAL", &format!("unknown status '{status}' of queuebalance: {message}"))
        }
    }
}

/// Perl takes an integer for milliseconds here.
fn seen(value: &Bson) -> Option<DateTime> {
    match value {
        Bson::DateTime(at) => Some(*at),
        other => whole_number(other).map(DateTime::from_millis),
    }
}

/// Whole seconds since `seen`, since 1970 if it never was.
fn age(seen: Option<DateTime>, now: DateTime) -> i64 {
    let seconds = |at: DateTime| at.timestamp_millis().div_euclid(1000);
    seconds(now).saturating_sub(seen.map_or(0, seconds))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_795_163_076_110);

    fn ago(seconds: i64) -> DateTime {
        DateTime::from_millis(NOW.timestamp_millis() - seconds * 1000)
    }

    #[test]
    fn nodes_are_fresh_for_a_minute() {
        assert_eq!(disbatch(&[], NOW), check("WARNING", "No Disbatch nodes found"));
        let node = |name: &str, seconds| doc! { "node": name, "timestamp": ago(seconds) };
        let of = |nodes: &[Document]| json::compact(&disbatch(nodes, NOW));
        assert_eq!(
            of(&[node("a", 60)]),
            r#"{"message":"Disbatch is running on one or more nodes","nodes":{"fresh":{"a":60}},"status":"OK"}"#
        );
        assert_eq!(
            of(&[node("a", 61), doc! { "node": 7 }, doc! { "node": "i", "timestamp": 1_700_000_000 }]),
            r#"{"message":"No active Disbatch nodes found","nodes":{"fresh":{},"stale":{"7":1795163076,"a":61,"i":1793463076}},"status":"CRITICAL"}"#
        );
        assert!(
            of(&[node("a", 0), node("b", 100)]).contains(r#""nodes":{"fresh":{"a":0},"stale":{"b":100}}"#)
        );
    }

    #[test]
    fn queuebalance_is_what_it_says_unless_it_is_gone() {
        let of = |document: Document| queuebalance(document.into(), NOW);
        let at = ago(5);
        assert_eq!(of(doc! { "status": "OK", "message": "runs", "timestamp": at }), check("OK", "runs"));
        assert_eq!(of(doc! { "status": "WARNING", "message": "m", "timestamp": at }), check("WARNING", "m"));
        assert_eq!(of(doc! { "status": "CRITICAL", "message": "m" }), check("CRITICAL", "m"));
        let gone = check("CRITICAL", "queuebalanced not running for 61s");
        assert_eq!(of(doc! { "status": "OK", "message": "runs", "timestamp": ago(61) }), gone);
        let never = check("CRITICAL", "queuebalanced not running: it has not run yet");
        assert_eq!(of(doc! {}), never);
        assert_eq!(of(doc! { "status": "odd", "timestamp": at })["status"], "CRITICAL");
    }
}
