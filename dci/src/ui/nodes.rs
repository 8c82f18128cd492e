//! `GET /nodes` for people: the machines, how they are doing, and how much they may run.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use futures::FutureExt;

use crate::error::HttpError;
use crate::openapi::OfFixed;
use crate::state::State;
use crate::ui::node_row::NodeTable;
use crate::ui::{self, Rendered, live, node_state};

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    table: NodeTable,
}

pub async fn render(state: &State) -> Rendered {
    ui::render(StatusCode::OK, &NodesPage { table: table(state).await? })
}

/// What of the page of nodes changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/nodes", tag = "service", operation_id = "nodesEvents",
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        OfFixed,
    ),
)]
pub async fn live(request: HttpRequest, state: Data<State>) -> HttpResponse {
    live::respond(&request, &state, "nodes", |state| {
        async move { table(&state).await?.parts() }.boxed_local()
    })
}

async fn table(state: &State) -> Result<NodeTable, HttpError> {
    let (nodes, now) = node_state::as_they_are(state, state.store.list_nodes().await?).await?;
    let hours = state.work.hours(state, &nodes).await?;
    Ok(NodeTable::of(&nodes, &now, Some(&hours)))
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Document, doc};

    use super::*;
    use crate::ui::live::assert_on_page;
    use crate::ui::node_state::Now;
    use crate::ui::node_work::Hours;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn html(nodes: &[Document]) -> String {
        let table = NodeTable::of(nodes, &Now { server: NOW, host: NOW }, Some(&Hours::default()));
        NodesPage { table }.render().unwrap()
    }

    fn node() -> Document {
        doc! {
            "_id": bson::oid::ObjectId::parse_str("6b0003b956635706337b691a").unwrap(), "node": "<vm>",
            "timestamp": NOW, "seen": NOW, "lease_ms": 30_000, "instance": "i", "maxthreads": "5", "running": 3,
            "version": "1.2.3", "plugins": ["A", "B"],
            "labels": { "gpu": "yes" },
            "stats": { "load": 1.256, "cpus": 4, "memory": 8_589_934_592_i64, "memory_available": 2_147_483_648_i64 },
        }
    }

    #[test]
    fn the_page_shows_each_node_and_what_can_be_changed() {
        let html = html(&[node()]);
        for part in [
            "<a href=\"/nodes\" aria-current=\"page\">Nodes</a>",
            "data-live=\"/ui/nodes\"",
            "<tr id=\"node-6b0003b956635706337b691a\">",
            "<a class=\"name\" href=\"/nodes/6b0003b956635706337b691a\">&#60;vm&#62;</a>",
            "<span class=\"status alive\">alive</span>",
            "name=\"maxthreads\" value=\"5\"",
            "1.26 of 4",
            "<meter min=\"0\" max=\"100\" high=\"90\" value=\"75\"",
            "1.2.3",
            "gpu=yes",
            "aria-checked=\"true\" name=\"draining\" value=\"true\">Take new tasks<",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<vm>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn odd_nodes_are_shown_as_far_as_they_go() {
        let nasty = format!("<script>'\"{}", "x".repeat(10_000));
        let html = html(&[doc! { "node": &nasty, "plugins": "none" }, doc! { "node": 5 }]);
        assert!(html.contains("<tr id=\"node-odd-0\">") && html.contains(">never<"), "{html}");
        assert!(
            html.contains("&#60;script&#62;&#39;&#34;x") && html.contains("href=\"/nodes/%3Cscript%3E"),
            "{html}"
        );
        assert!(!html.split("<main").nth(1).unwrap().contains("<script"), "it is text");
        assert!(!html.contains("<form class=\"change\""), "nobody knows how to change it: {html}");
    }

    #[test]
    fn every_part_is_on_the_page_under_its_id() {
        let table = NodeTable::of(
            &[node(), doc! { "node": "b" }],
            &Now { server: NOW, host: NOW },
            Some(&Hours::default()),
        );
        let parts = table.parts().unwrap();
        let html = NodesPage { table }.render().unwrap();
        assert_eq!(parts.len(), 3);
        assert!(parts[1..].iter().all(|part| part.is_within("nodes")), "no row is sent twice");
        assert_on_page(&parts, &html);
    }

    #[test]
    fn no_nodes_is_said_with_what_to_do() {
        assert!(html(&[]).contains("No node has been seen yet."));
    }
}
