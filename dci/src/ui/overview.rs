//! `GET /`: all queues and nodes.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use askama::Template;
use bson::{DateTime, Document};
use disbatch_core::model::{Count, Moment, Queue};
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
}

struct NodeRow {
    name: String,
    seen: String,
    stale: bool,
    limit: Option<u64>,
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
    let (queues, nodes) = futures::try_join!(list_queues::counted(state), state.store.list_nodes())?;
    let now = state.store.now();
    let overview = Overview {
        database: state.store.database_name().to_owned(),
        queues: queues.iter().map(|(queue, counts)| queue_row(queue, *counts)).collect(),
        nodes: nodes.iter().map(|node| node_row(node, now)).collect(),
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
    }
}

fn node_row(node: &Document, now: DateTime) -> NodeRow {
    let seen = node.get("timestamp");
    let at = seen.and_then(|value| Moment(value.clone()).get());
    let age = at.map(|at| (now.timestamp_millis() - at.timestamp_millis()) / 1000);
    NodeRow {
        name: plain(node.get("node")),
        seen: time(seen),
        stale: age.is_none_or(|age| age > STALE_SECONDS),
        limit: node.get("maxthreads").and_then(|limit| Count(limit.clone()).get()),
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
            "name": "<mail>", "plugin": "My::Plugin", "threads": "3",
        })
        .unwrap();
        let counts = Counts { queued: 17, running: 2, completed: 5 };
        let html = Overview {
            database: "disbatch".into(),
            queues: vec![queue_row(&queue, counts)],
            nodes: vec![
                node_row(&doc! { "node": "vm", "timestamp": now, "maxthreads": 5 }, now),
                node_row(&doc! { "node": "old" }, now),
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
            "<html lang=\"en\">",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn an_empty_database_says_so() {
        let html = Overview { database: "d".into(), queues: vec![], nodes: vec![] }.render().unwrap();
        assert!(html.contains("There are no queues yet.") && html.contains("No node has been seen yet."));
    }
}
