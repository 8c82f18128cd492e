//! `GET /`: all queues and nodes.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use askama::Template;
use bson::{Bson, DateTime, Document};
use disbatch_core::model::{Count, Moment, Node, Queue};
use disbatch_core::queue::Counts;

use crate::api::list_queues;
use crate::openapi::OfRead;
use crate::state::State;
use crate::ui::{self, Rendered, plain, time};

/// A node that was not seen for so many seconds is shown as gone, as `/monitoring` counts.
const STALE_SECONDS: i64 = 60;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    database: String,
    queues: Vec<QueueRow>,
    nodes: Vec<NodeRow>,
}

struct QueueRow {
    id: String,
    name: String,
    plugin: String,
    threads: u64,
    counts: Counts,
    paused: bool,
    accepting: bool,
    reason: String,
}

struct NodeRow {
    id: String,
    name: String,
    seen: String,
    state: NodeState,
    /// What its DEN said; nothing for one of Perl's.
    running: String,
    limit: Option<u64>,
    /// Whether an operator wants it to claim nothing more.
    draining: bool,
    /// Whether a DEN works there that knows how to drain.
    changeable: bool,
}

/// How a node is doing, and how that is shown.
struct NodeState {
    word: &'static str,
    class: &'static str,
}

/// The page.
#[utoipa::path(
    get, path = "/", tag = "service", operation_id = "overview",
    responses(
        (status = 200, description = "Queues and nodes.", body = String, content_type = "text/html"),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>) -> HttpResponse {
    ui::page(show(&state).await)
}

async fn show(state: &State) -> Rendered {
    let (queues, nodes, server) =
        futures::try_join!(list_queues::counted(state), state.store.list_nodes(), state.store.server_time())?;
    let now = Now { server, host: state.store.now() };
    let overview = Overview {
        database: state.store.database_name().to_owned(),
        queues: queues.iter().map(|(queue, counts)| queue_row(queue, *counts)).collect(),
        nodes: nodes.iter().map(|node| node_row(node, &now)).collect(),
    };
    ui::render(StatusCode::OK, &overview)
}

fn queue_row(queue: &Queue, counts: Counts) -> QueueRow {
    QueueRow {
        id: queue.id.to_string(),
        name: queue.display_name(),
        plugin: plain(queue.plugin.as_ref()),
        threads: queue.thread_limit(),
        counts,
        paused: queue.is_paused(),
        accepting: queue.is_accepting(),
        reason: queue.reason().unwrap_or_default().to_owned(),
    }
}

/// The time by the two clocks that nodes' times are of.
struct Now {
    server: DateTime,
    host: DateTime,
}

fn node_row(document: &Document, now: &Now) -> NodeRow {
    let seen = document.get("timestamp");
    // An entry without a usable id is shown as far as it goes.
    let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
    let id = document.get_object_id("_id").map(|id| id.to_hex());
    NodeRow {
        changeable: id.is_ok() && node.as_ref().is_some_and(Node::is_ours),
        id: id.unwrap_or_default(),
        name: plain(document.get("node")),
        seen: time(seen),
        state: state(node.as_ref(), seen, now),
        running: plain(document.get("running")),
        limit: document.get("maxthreads").and_then(|limit| Count(limit.clone()).get()),
        draining: node.is_some_and(|node| node.is_draining()),
    }
}

/// By its heartbeat and the clock of the server; by the time that it told for one of Perl's.
fn state(node: Option<&Node>, seen: Option<&Bson>, now: &Now) -> NodeState {
    let ours = node.filter(|node| node.is_ours());
    let alive = match (ours, ours.and_then(Node::last_beat)) {
        (_, Some((seen, lease))) => {
            let silence = now.server.timestamp_millis().saturating_sub(seen.timestamp_millis());
            silence <= i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)
        }
        (Some(_), None) => return NodeState { word: "stopped", class: "ended" },
        (None, None) => {
            let at = seen.and_then(|value| Moment(value.clone()).get());
            let age = at.map(|at| (now.host.timestamp_millis() - at.timestamp_millis()) / 1000);
            age.is_some_and(|age| age <= STALE_SECONDS)
        }
    };
    let draining = ours.is_some_and(|node| node.is_draining() || node.state() == Some("draining"));
    match (alive, draining) {
        (false, _) if ours.is_none() => NodeState { word: "gone", class: "failed" },
        (false, _) => NodeState { word: "dead", class: "failed" },
        (true, true) => NodeState { word: "draining", class: "running" },
        (true, false) => NodeState { word: "alive", class: "succeeded" },
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_page_shows_queues_and_nodes_and_escapes_names() {
        let now = DateTime::from_millis(1_795_163_067_344);
        let queue: Queue = bson::deserialize_from_document(doc! {
            "_id": bson::oid::ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap(),
            "name": "<mail>", "plugin": "My::Plugin", "threads": "3", "paused": true, "reason": "a <move>",
        })
        .unwrap();
        let both = Now { server: now, host: now };
        let counts = Counts { queued: 17, running: 2, completed: 5 };
        let html = Overview {
            database: "disbatch".into(),
            queues: vec![queue_row(&queue, counts)],
            nodes: vec![
                node_row(&doc! { "node": "vm", "timestamp": now, "maxthreads": 5 }, &both),
                node_row(&doc! { "node": "old" }, &both),
            ],
        }
        .render()
        .unwrap();
        for part in [
            "&#60;mail&#62;",
            "/tasks?queue=6b0003bb686c8275d70dc2f1",
            "My::Plugin",
            ">17<",
            "2026-11-20 08:24:27",
            "old",
            "<span class=\"badge\">paused</span>",
            "a &#60;move&#62;",
            "<button name=\"paused\" value=\"\">Resume</button>",
            "<button name=\"accepting\" value=\"false\">Refuse new tasks</button>",
            "<html lang=\"en\">",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn a_node_is_as_its_den_says_and_the_server_counts() {
        let (now, late) = (DateTime::from_millis(1_795_163_067_344), DateTime::from_millis(0));
        let both = Now { server: now, host: now };
        let word = |fields: Document| {
            let mut node = doc! { "_id": bson::oid::ObjectId::new(), "node": "n", "timestamp": now };
            node.extend(fields);
            node_row(&node, &both).state.word
        };
        let ours =
            |seen: DateTime| doc! { "instance": "i", "seen": seen, "lease_ms": 30_000, "state": "alive" };
        assert_eq!(word(ours(now)), "alive");
        assert_eq!(word(ours(late)), "dead");
        let mut draining = ours(now);
        draining.insert("draining", true);
        assert_eq!(word(draining), "draining");
        assert_eq!(word(doc! { "instance": "i", "state": "stopped" }), "stopped");
        assert_eq!(word(doc! {}), "alive");
        assert_eq!(word(doc! { "timestamp": late }), "gone");
    }

    #[test]
    fn an_empty_database_says_so() {
        let html = Overview { database: "d".into(), queues: vec![], nodes: vec![] }.render().unwrap();
        assert!(html.contains("There are no queues yet.") && html.contains("No node has been seen yet."));
    }
}
