//! `GET /nodes/:node` for people: one machine, what runs there, and what it was like over time.

mod charts;
mod live_parts;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use askama::Template;
use bson::{Bson, Document};
use disbatch_core::plugin::Report;
use disbatch_core::series::NodePoint;

use crate::access::Who;
use crate::api::{Answer, nodes, redirect};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfRead, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::live::Part;
use crate::ui::overview::throughput::Span;
use crate::ui::parts::Charts;
use crate::ui::{Rendered, live, plain, text};
use crate::{json, ui};
use charts::Of;
use live_parts::{Facts, NodeParts};

#[derive(Template)]
#[template(path = "node.html")]
struct NodePage {
    /// Its own id; nothing if it has none that can be used.
    id: String,
    shown: NodeParts,
    plugins: Option<Vec<String>>,
    problems: Vec<Report>,
    charts: Charts,
    /// The address of the list of its tasks.
    tasks: String,
}

pub async fn render(state: &State, name: &str, params: &Params) -> Rendered {
    let node = nodes::find(state, name).await?;
    let span = Span::of(params);
    let (facts, points) =
        futures::try_join!(Facts::gather(state, node.clone()), charts::points(&state.store, &node, span),)?;
    ui::render(StatusCode::OK, &page(&facts, span, &points))
}

fn page(facts: &Facts, span: Span, points: &[NodePoint]) -> NodePage {
    let node = &facts.node;
    let id = node.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default();
    let plugins = node.get("plugins").and_then(Bson::as_array);
    NodePage {
        shown: NodeParts::of(facts),
        problems: Report::of_node(node),
        plugins: plugins.map(|all| all.iter().map(|name| plain(Some(name))).collect()),
        tasks: tasks_of(node),
        charts: charts::first((format!("/nodes/{id}"), tasks_of(node)), span, points),
        id,
    }
}

/// The address of the list of all tasks that a node has had.
fn tasks_of(node: &Document) -> String {
    format!("/tasks?node={}", encoded(&plain(node.get("node"))))
}

/// What of the page of a node changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/nodes/{id}", tag = "service", operation_id = "nodeEvents",
    params(("id" = String, Path, description = "The node's id.", example = "6b0003b956635706337b691a")),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such node.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn live(request: HttpRequest, state: Data<State>, id: Path<String>) -> Answer {
    nodes::find(&state, &id).await?;
    Ok(live::of_one(&request, &state, ("node", id.into_inner()), parts))
}

/// Removes a node that is not alive, and leads to the list: for browsers that run no script.
#[utoipa::path(
    post, path = "/ui/nodes/{id}/delete", tag = "service", operation_id = "deleteNodeByForm",
    params(("id" = String, Path, description = "The node's id.", example = "6b0003b956635706337b691a")),
    responses(
        (status = 303, description = "Removed; the list of nodes is next."),
        (status = 404, description = "There is no such node. A page, unless this is no id at all.",
         content((String = "text/html"), (ErrorBody = "application/json"))),
        (status = 409, description = "Its DEN is alive. A page.", body = String, content_type = "text/html"),
        OfWrite,
    ),
)]
pub async fn remove(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    redirect::lead(nodes::delete(&state, &who, &id).await, "/nodes")
}

async fn parts(state: &State, id: &str) -> Result<Vec<Part>, HttpError> {
    let node = nodes::find(state, id).await?;
    NodeParts::of(&Facts::gather(state, node).await?).parts()
}

/// What a node was like over time: `of` is `running`, how many runners lived there, `load`, or `memory`, how much of it
/// was available.
#[utoipa::path(
    get, path = "/ui/nodes/{id}/chart", tag = "service", operation_id = "showNodeChart",
    params(
        ("id" = String, Path, description = "The node's id.", example = "6b0003b956635706337b691a"),
        ("of" = Option<String>, Query, description = "running, load or memory."),
        ("span" = Option<String>, Query, description = "1h, 24h or 7d."),
    ),
    responses(
        (status = 200, description = "What the chart shows.", body = serde_json::Value),
        (status = 404, description = "There is no such node.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn chart(state: Data<State>, id: Path<String>, params: Result<Params, HttpError>) -> Answer {
    let params = params.unwrap_or_default();
    let node = nodes::find(&state, &id).await?;
    let (of, span) = (Of::named(&text(params.fields.get("of"))), Span::of(&params));
    let points = charts::points(&state.store, &node, span).await?;
    Ok(json::ok(&charts::chart(of, span, &points)))
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;
    use crate::ui::live::assert_on_page;
    use crate::ui::names::Titles;
    use crate::ui::node_state::Now;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn facts(node: Document, tasks: Vec<Document>) -> Facts {
        let queue = bson::oid::ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap();
        Facts {
            node,
            tasks,
            more: true,
            failed: vec![doc! {
                "_id": bson::oid::ObjectId::parse_str("6b0003bb686c8275d8013335").unwrap(), "queue": queue, "status": 2,
                "params": { "command": "<false>" }, "mtime": NOW,
            }],
            hours: std::sync::Arc::default(),
            queues: [(queue, "<mail>".to_owned())].into(),
            titles: Titles::default(),
            now: Now { server: NOW, host: NOW },
        }
    }

    fn node() -> Document {
        doc! {
            "_id": bson::oid::ObjectId::parse_str("6b0003b956635706337b691a").unwrap(), "node": "<vm>",
            "timestamp": NOW, "seen": NOW, "lease_ms": 30_000, "instance": "i", "running": 1, "version": "1.2.3",
            "labels": { "gpu": "yes" }, "addresses": { "private": ["10.0.0.5"], "public": [] }, "rival": "other",
            "plugins": ["My::Plugin", "<odd>"],
            "plugin_problems": [{ "plugin": "<Bad>", "why": "/p/plugin.json: EOF" }, { "why": "/q: gone" }], "serves": { "active": [1, 2] },
            "stats": { "load": 0.5, "cpus": 2, "memory": 8_589_934_592_i64, "memory_available": 2_147_483_648_i64 },
        }
    }

    fn tasks() -> Vec<Document> {
        let queue = bson::oid::ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap();
        let id = |hex| bson::oid::ObjectId::parse_str(hex).unwrap();
        vec![
            doc! {
                "_id": id("6b0003bb686c8275d8013333"), "queue": queue, "status": 0, "started": NOW,
                "progress": { "percent": 41.7, "message": "<half>" },
            },
            doc! { "_id": id("6b0003bb686c8275d8013334"), "queue": "odd", "status": -1 },
        ]
    }

    fn html(facts: &Facts) -> String {
        let point = NodePoint { at: NOW, running: Some(2.0), load: None, memory_available: Some(1e9) };
        page(facts, Span::Hour, &[point]).render().unwrap()
    }

    #[test]
    fn the_page_shows_the_node_and_what_runs_there() {
        let html = html(&facts(node(), tasks()));
        for part in [
            "data-live=\"/ui/nodes/6b0003b956635706337b691a\"",
            "&#60;vm&#62;</h1>",
            "<span class=\"status alive\">alive</span>",
            "<a href=\"/tasks/6b0003bb686c8275d8013333\">",
            "<a class=\"name\" href=\"/queues/6b0003bb686c8275d70dc2f1\">&#60;mail&#62;</a>",
            "<progress max=\"100\" value=\"41.7\"",
            "&#60;half&#62;",
            "only the first",
            "href=\"/tasks?node=%3Cvm%3E\">All its tasks</a>",
            "<a class=\"called\" href=\"/tasks/6b0003bb686c8275d8013335\" title=\"&#60;false&#62;\">&#60;false&#62;</a>",
            "&#60;false&#62;",
            "No task of it has ended within the last hour.",
            "href=\"/plugins#My::Plugin\"",
            "&#60;odd&#62;",
            "<strong>&#60;Bad&#62;</strong>: /p/plugin.json: EOF",
            "/q: gone",
            "only 2 queues",
            "data-chart=\"/ui/nodes/6b0003b956635706337b691a/chart?of=memory&amp;span=1h\"",
            "1.2.3",
            "gpu=yes",
            "private: 10.0.0.5",
            "Two DENs use the name &#60;vm&#62;",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<vm>") && !html.contains("<mail>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn one_that_is_gone_can_be_removed() {
        let mut gone = node();
        gone.insert("seen", DateTime::from_millis(0));
        gone.insert("hook", doc! { "by": "n2", "outcome": "exit status: 3" });
        let gone = html(&facts(gone, vec![]));
        assert!(gone.contains("action=\"/ui/nodes/6b0003b956635706337b691a/delete\""), "{gone}");
        assert!(
            gone.contains("n2 ran on_dead_node: exit status: 3.") && !gone.contains("Two DENs"),
            "{gone}"
        );
        assert!(!html(&facts(node(), vec![])).contains("/delete\""));
    }

    #[test]
    fn odd_nodes_and_those_of_perl_are_shown_too() {
        let nasty = "<script>'\"".repeat(1000);
        let html = html(&facts(doc! { "node": &nasty, "stats": 5, "timestamp": "soon" }, vec![]));
        let body = html.split("<main").nth(1).unwrap();
        assert!(!body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"), "it is text");
        assert!(
            !body.contains(" data-live=") && html.contains("It is not known which plugins it has"),
            "{html}"
        );
        assert!(html.contains("No task runs here."), "{html}");
    }

    #[test]
    fn every_part_is_on_the_page_under_its_id() {
        let facts = facts(node(), tasks());
        let html = html(&facts);
        let parts = NodeParts::of(&facts).parts().unwrap();
        assert!(parts.len() >= 4);
        assert_on_page(&parts, &html);
    }
}
