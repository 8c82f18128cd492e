//! What this server has: its routes, plugins and metrics; and whether it is there, the database answers it, and all is well: for load
//! balancers, monitoring systems and people.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT, HeaderName, HeaderValue};
use actix_web::web::{self, Data};
use actix_web::{HttpRequest, HttpResponse};
use bson::{Bson, DateTime, Document};
use disbatch_core::balance::BalanceDocument;
use disbatch_core::health;
use disbatch_core::metrics::{Component, Format};
use disbatch_core::model::whole_number;
use disbatch_core::store::StoreError;
use disbatch_wire::definitions::{DetailedPlugin, ListedPlugin};
use disbatch_wire::explanations::Diagnosis;
use disbatch_wire::options::Details;
use serde_json::{Value, json};

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{JSON_OR_PAGE, OfAnybody, OfFixed};
use crate::options::OF_PERL;
use crate::params::Lenient;
use crate::state::{Extension, State};
use crate::ui::VERSION;
use crate::ui::nodes::Now;
use crate::{doctor, json, ui};

/// The name of the database, the routes, and which extensions add to them.
#[utoipa::path(
    get, path = "/info", tag = "service", operation_id = "showInfo",
    responses(
        (status = 200, description = "The routes are in the notation of Perl Disbatch. The header `Disbatch-Version` is the version of \
            this server.", body = Value),
        OfFixed,
    ),
)]
pub async fn info(state: Data<State>) -> HttpResponse {
    let [mut get, mut post, delete] = ["GET", "POST", "DELETE"].map(|method| {
        let of_method = OF_PERL.into_iter().filter(|(of, ..)| *of == method);
        of_method.map(|(.., route)| route).collect::<Vec<_>>()
    });
    for extension in &state.extensions {
        match extension {
            Extension::Tasks => post
                .extend(["(?^u:^/tasks/(?<queue>[^/]+)$)", "(?^u:^/tasks/(?<queue>.+?)/(?<collection>.+)$)"]),
            Extension::V3 => {
                get.extend(["/scheduler-json", "/queue-prototypes-json"]);
                post.extend([
                    "/set-queue-attr-json",
                    "/start-queue-json",
                    "/delete-queue-json",
                    "/queue-create-tasks-json",
                    "/queue-create-tasks-from-query-json",
                    "/search-tasks-json",
                ]);
            }
        }
    }
    get.push("(?^u:^/)"); // Static files.
    let mut extensions: Vec<&str> = state.extensions.iter().map(|extension| extension.as_str()).collect();
    extensions.sort_unstable();
    let mut response = json::ok(&json!({
        "database": state.store.database_name(),
        "routes": { "DELETE": delete, "GET": get, "POST": post },
        "web_extensions": extensions,
    }));
    // Not in the body, which is that of Perl Disbatch.
    response
        .headers_mut()
        .insert(HeaderName::from_static("disbatch-version"), HeaderValue::from_static(VERSION));
    response
}

/// The names of the plugins that queues may be created with, those of workers among them. With the option `.details` each is an object with
/// its `name` and the `versions` that are known of it. Browsers get a page that tells more of them.
#[utoipa::path(
    get, path = "/plugins", tag = "queues", operation_id = "listPlugins",
    params(Details),
    responses(
        (status = 200, description = "The names; a page if `Accept` asks for HTML.", body = Vec<ListedPlugin>,
            content_type = JSON_OR_PAGE, example = json!(["Disbatch::Plugin::Demo"])),
    ),
)]
pub async fn plugins(state: Data<State>, Lenient(params): Lenient) -> Answer {
    let plugins = state.catalogue().await?;
    let details = params.is_on("details");
    let listed = |name: &String| {
        if !details {
            return ListedPlugin::Name(name.clone());
        }
        let versions = plugins.versions(name).map(str::to_owned).collect();
        ListedPlugin::Detailed(DetailedPlugin { name: name.clone(), versions })
    };
    json::of(&plugins.names().iter().map(listed).collect::<Vec<_>>())
}

/// The metrics of this server and of all queues, for Prometheus: in its format, or in that of OpenMetrics if `Accept` names
/// `application/openmetrics-text`. `docs/metrics.md` has all of them. What comes from the database is some seconds old at most,
/// unless there is much of it; what cannot be found out is missing.
#[utoipa::path(
    get, path = "/metrics", tag = "service", operation_id = "getMetrics",
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain, application/openmetrics-text")),
)]
pub async fn metrics(request: HttpRequest, state: Data<State>) -> Answer {
    state.gathered.renew(&state.store).await;
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::of_accept(accept);
    let metrics = state.store.metrics().clone();
    // Of many queues it is a long text.
    let text = web::block(move || metrics.text(Component::Dci, format)).await;
    let text = text.map_err(|error| HttpError::internal(&format!("metrics cannot be written: {error}")))?;
    Ok(HttpResponse::Ok().content_type(format.content_type()).body(text))
}

/// Whether an address is one of these: who asks there knows this server by any name, its address for instance.
pub fn is_health_check(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Whether this server is there. The database is not asked.
#[utoipa::path(
    get, path = "/healthz", tag = "service", operation_id = "getHealth",
    responses((status = 200, description = "It is: `ok`.", body = String, content_type = "text/plain"), OfAnybody),
)]
pub async fn alive() -> HttpResponse {
    plain_text(StatusCode::OK, health::ALIVE.to_owned())
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
        None => plain_text(StatusCode::OK, health::READY.to_owned()),
        Some(why) => plain_text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn plain_text(status: StatusCode, text: String) -> HttpResponse {
    HttpResponse::build(status).content_type("text/plain; charset=utf-8").body(text)
}

/// Checks whether all is well: the database and this server's rights in it, indexes, disk, clocks, nodes and their releases, plugins, queues that no
/// node serves, schedules that are late, users. Each finding says what to do. Nothing reads tasks, so it may be asked at any time.
#[utoipa::path(
    get, path = "/doctor", tag = "service", operation_id = "diagnose",
    responses((status = 200, description = "What was found.", body = Diagnosis)),
)]
pub async fn diagnose(state: Data<State>) -> Answer {
    json::of(&doctor::diagnose(&state).await?)
}

/// A node of Perl's or `QueueBalance` that has not been heard of for more seconds does not run.
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
    ),
)]
pub async fn monitoring(state: Data<State>) -> Answer {
    Ok(json::ok(&monitored(&state).await?))
}

pub async fn monitored(state: &State) -> Result<Value, StoreError> {
    if !state.monitoring {
        let disabled = check("OK", "monitoring disabled");
        return Ok(json!({ "disbatch": disabled, "queuebalance": disabled }));
    }
    let nodes = state.store.list_nodes().await?;
    let now = Now::read(&state.store).await?;
    let balance = if state.balance.enabled.0 {
        let stored = state.store.stored_balance().await?;
        queuebalance(stored.map(BalanceDocument::from).unwrap_or_default(), now.host)
    } else {
        check("OK", "queuebalance disabled")
    };
    Ok(json!({ "disbatch": disbatch(&nodes, &now), "queuebalance": balance }))
}

fn check(status: &str, message: &str) -> Value {
    json!({ "message": message, "status": status })
}

/// How long ago a node was seen, and whether that is not long: by the clock of the server for one of ours, by the time that it told for one of
/// Perl's. One of ours that was ended is not stale at once, as it may be started again; a clock that is ahead does not keep it.
fn health_of(node: &Document, now: &Now) -> (i64, bool) {
    if let Ok(beat) = node.get_datetime("seen") {
        let age = age(Some(*beat), now.server);
        return (age, age <= STALE_SECONDS);
    }
    let told = age(node.get("timestamp").and_then(seen), now.host);
    (told, told <= STALE_SECONDS && (told >= 0 || !node.contains_key("instance")))
}

fn disbatch(nodes: &[Document], now: &Now) -> Value {
    let (mut fresh, mut stale) = (BTreeMap::new(), BTreeMap::new());
    for node in nodes {
        let (age, is_up) = health_of(node, now);
        let group = if is_up { &mut fresh } else { &mut stale };
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
        let now = Now { server: NOW, host: NOW };
        assert_eq!(disbatch(&[], &now), check("WARNING", "No Disbatch nodes found"));
        let node = |name: &str, seconds| doc! { "node": name, "timestamp": ago(seconds) };
        let of = |nodes: &[Document]| json::compact(&disbatch(nodes, &now));
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
    fn nodes_of_ours_are_judged_by_the_clock_of_the_server_alone() {
        // Their clocks are an hour ahead, and that of this host is late.
        let now = Now { server: NOW, host: ago(600) };
        let node = |fields: Document| {
            let mut node = doc! { "instance": "i", "timestamp": ago(-3_600) };
            node.extend(fields);
            node
        };
        let [alive, dead] = [5, 61].map(ago);
        let of = |nodes: &[Document]| json::compact(&disbatch(nodes, &now)["nodes"]);
        let nodes = [
            node(doc! { "node": "a", "state": "alive", "seen": alive }),
            node(doc! { "node": "b", "state": "alive", "seen": dead }),
            node(doc! { "node": "c", "state": "stopped" }),
        ];
        assert_eq!(of(&nodes), r#"{"fresh":{"a":5},"stale":{"b":61,"c":-4200}}"#);
        let ended = doc! { "node": "d", "instance": "i", "state": "stopped", "timestamp": ago(630) };
        assert_eq!(of(&[ended]), r#"{"fresh":{"d":30}}"#);
        assert_eq!(disbatch(&nodes[1..], &now)["status"], "CRITICAL");
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
