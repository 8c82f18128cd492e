//! `GET /nodes/:node` for people: one machine, what runs there, and what it was like over time.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use askama::Template;
use bson::{Bson, Document};
use disbatch_core::model::{NodeName, QueueId, number};
use disbatch_core::node::Addresses;
use disbatch_core::plugin::Report;
use disbatch_core::series::NodePoint;
use disbatch_core::store::{Store, StoreError};
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::{Answer, nodes, redirect};
use crate::error::HttpError;
use crate::openapi::{EventStream, JSON_OR_PAGE};
use crate::params::Lenient;
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::{Link, QueueNames, Titles, encoded, name_of, names, place};
use crate::ui::node_work::{Hours, OfQueue, last_hour};
use crate::ui::nodes::{NodeRow, as_it_is};
use crate::ui::overview::throughput::Span;
use crate::ui::parts::{Chart, Charts, Spark, bytes, counted, drawn};
use crate::ui::{Rendered, plain, text};
use crate::{json, ui};

#[derive(Template)]
#[template(path = "node.html")]
struct NodePage<'a> {
    /// Its own id; nothing if it has none that can be used.
    id: String,
    shown: &'a Facts,
    plugins: Option<Vec<String>>,
    problems: Vec<Report>,
    charts: Charts,
}

pub async fn render(state: Data<State>, name: Path<String>, Lenient(params): Lenient) -> Rendered {
    let node = nodes::find(&state, &name).await?;
    let span = Span::of(&params);
    let (facts, points) =
        futures::try_join!(Facts::gather(&state, node.clone()), points(&state.store, &node, span))?;
    ui::render(&page(&facts, span, &points))
}

fn page<'a>(facts: &'a Facts, span: Span, points: &[NodePoint]) -> NodePage<'a> {
    let node = &facts.document;
    let id = id(node);
    let tasks = format!("/tasks?node={}", encoded(&plain(node.get("node"))));
    let plugins = node.get("plugins").and_then(Bson::as_array);
    NodePage {
        shown: facts,
        problems: Report::of_node(node),
        plugins: plugins.map(|all| all.iter().map(|name| plain(Some(name))).collect()),
        charts: charts_of((format!("/nodes/{id}"), tasks), span, points),
        id,
    }
}

/// What of the page of a node changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/nodes/{id}", tag = "service", operation_id = "nodeEvents",
    params(("id" = String, Path, description = "The node's id.", example = "6b0003b956635706337b691a")),
    responses(EventStream, (status = 404, description = "There is no such node.")),
)]
pub async fn live(request: HttpRequest, state: Data<State>, id: Path<String>) -> Answer {
    nodes::find(&state, &id).await?;
    Ok(live::of_one(&request, &state, ("node", id.into_inner()), async |state, id| {
        Facts::gather(state, nodes::find(state, id).await?).await?.parts()
    }))
}

/// Removes a node that is not alive, and leads to the list: for browsers that run no script.
#[utoipa::path(
    post, path = "/ui/nodes/{id}/delete", tag = "service", operation_id = "deleteNodeByForm",
    params(("id" = String, Path, description = "The node's id.", example = "6b0003b956635706337b691a")),
    responses(
        (status = 303, description = "Removed; the list of nodes is next."),
        (status = 404, description = "There is no such node. A page, unless this is no id at all.", content_type = JSON_OR_PAGE),
        (status = 409, description = "Its DEN is alive. A page.", body = String, content_type = "text/html"),
    ),
)]
pub async fn remove(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    redirect::lead(nodes::remove(state, who, id).await, "/nodes")
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
        (status = 404, description = "There is no such node."),
    ),
)]
pub async fn chart(state: Data<State>, id: Path<String>, Lenient(params): Lenient) -> Answer {
    let node = nodes::find(&state, &id).await?;
    let (of, span) = (Of::named(&text(params.fields.get("of"))), Span::of(&params));
    let points = points(&state.store, &node, span).await?;
    Ok(json::ok(&chart_of(of, span, &points)))
}

/// So many of its tasks are shown.
const MOST: usize = 200;

/// So many of those that failed last.
const FAILED: i64 = 5;

/// So many characters of params are shown.
const PARAMS: usize = 160;

/// What the page shows. Its blocks are the parts that change by themselves.
#[derive(Debug, Template)]
#[template(path = "node/parts.html", blocks = ["head", "controls", "facts", "notices", "tasks", "work", "failures"])]
struct Facts {
    node: NodeRow,
    /// The same as stored.
    document: Document,
    /// Those that are claimed or running there, the oldest first.
    tasks: Vec<Document>,
    more: bool,
    failed: Vec<Document>,
    hours: Arc<Hours>,
    queues: QueueNames,
    titles: Titles,
}

impl Facts {
    async fn gather(state: &State, node: Document) -> Result<Self, StoreError> {
        let store = &state.store;
        let (document, now) = as_it_is(state, node).await?;
        let name = plain(document.get("node"));
        let one_more = i64::try_from(MOST).unwrap_or(i64::MAX).saturating_add(1);
        let (mut tasks, queues, nodes) = futures::try_join!(
            store.tasks_on_node(&name, one_more),
            store.list_queues(),
            store.list_nodes(),
        )?;
        let ids: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
        let (failed, hours, titles) = futures::try_join!(
            store.failed_on_node(&name, &ids, FAILED),
            last_hour(state, &nodes),
            state.titles(&queues),
        )?;
        let more = tasks.len() > MOST;
        tasks.truncate(MOST);
        // Ids begin with the time of their creation.
        tasks.sort_by_key(|task| task.get_object_id("_id").ok());
        let (node, queues) = (NodeRow::of(0, &document, &now), names(&queues));
        Ok(Self { node, document, tasks, more, failed, hours, queues, titles })
    }

    fn addresses(&self) -> Vec<(&'static str, String)> {
        let Addresses { private, public } = Addresses::of_node(&self.document);
        let known = [("private", private), ("public", public)].into_iter().filter(|(_, all)| !all.is_empty());
        known.map(|(kind, all)| (kind, all.join(", "))).collect()
    }

    /// Another DEN that uses its name.
    fn rival(&self) -> Option<&str> {
        self.document.get_str("rival").ok().filter(|_| self.node.state.is_up())
    }

    /// What was run when it died, and what came of it.
    fn hook(&self) -> Option<String> {
        let hook = self.document.get_document("hook").ok().filter(|_| !self.node.state.is_up())?;
        let by = plain(hook.get("by"));
        Some(match hook.get_str("outcome") {
            Ok(outcome) => format!("When it died, {by} ran on_dead_node: {outcome}."),
            Err(_) => format!("When it died, {by} began to run on_dead_node."),
        })
    }

    /// The queue of a task, with its page if it has one.
    fn queue(&self, task: &Document) -> Link {
        let queue = task.get("queue");
        let Some(id) = queue.and_then(Bson::as_object_id) else { return Link::nowhere(plain(queue)) };
        let name = name_of(&self.queues, QueueId(id));
        let address = place(id, &name);
        Link::to(name, address)
    }

    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let mut parts = vec![
            Part::new(&self.as_head())?,
            Part::new(&self.as_notices())?,
            Part::new(&self.as_facts())?,
            Part::new(&self.as_tasks())?,
            Part::new(&self.as_work())?,
            Part::new(&self.as_failures())?,
        ];
        if self.node.is_known {
            parts.push(Part::new(&self.as_controls())?);
        }
        Ok(parts)
    }
}

fn id(task: &Document) -> String {
    task.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default()
}

/// How far a task is: percents, if they are known, and words.
fn progress(task: &Document) -> (Option<f64>, String) {
    let progress = task.get("progress").and_then(Bson::as_document);
    let percent = progress.and_then(|progress| progress.get("percent")).and_then(number);
    let message = progress.and_then(|progress| progress.get_str("message").ok());
    (percent.filter(|percent| (0.0..=100.0).contains(percent)), message.unwrap_or_default().to_owned())
}

/// Which queues its configuration restricts it to, if it does.
fn serves(node: &Document) -> Option<String> {
    let serves = node.get_document("serves").ok()?;
    let count = |key: &str| serves.get_array(key).ok().map(Vec::len);
    if let Some(active) = count("active") {
        return Some(format!("only {} (activequeues of its configuration)", counted(active, "queue")));
    }
    let ignored = count("ignored").filter(|ignored| *ignored > 0)?;
    Some(format!("all but {} (ignorequeues of its configuration)", counted(ignored, "queue")))
}

const GIBIBYTE: f64 = 1_073_741_824.0;

#[derive(Debug, Clone, Copy)]
struct Of {
    /// As addresses have it.
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    value: fn(&NodePoint) -> Option<f64>,
    words: fn(f64) -> String,
}

/// How many runners lived, the load average of one minute, and the memory that was available.
const CHARTS: [Of; 3] = [
    Of {
        name: "running",
        title: "Running tasks",
        unit: "tasks",
        value: |point| point.running,
        words: |value| format!("{value:.1}"),
    },
    Of {
        name: "load",
        title: "Load",
        unit: "processes",
        value: |point| point.load,
        words: |value| format!("{value:.2}"),
    },
    Of {
        name: "memory",
        title: "Memory available",
        unit: "GiB",
        value: |point| point.memory_available.map(|bytes| bytes / GIBIBYTE),
        words: |value| bytes(whole(value * GIBIBYTE)),
    },
];

impl Of {
    fn named(name: &str) -> Self {
        CHARTS.into_iter().find(|of| of.name == name).unwrap_or(CHARTS[0])
    }
}

fn charts_of((place, tasks): (String, String), span: Span, points: &[NodePoint]) -> Charts {
    let charts = CHARTS.map(|of| {
        // Hundredths, as loads are small.
        let value = |point: &NodePoint| (whole((of.value)(point).unwrap_or_default() * 100.0), 0);
        let picture = Spark::new(&points.iter().map(value).collect::<Vec<_>>(), words(of, span, points));
        Chart { of: of.name, title: of.title, picture }
    });
    Charts { place, tasks, span, charts: charts.into() }
}

/// A number that is none below zero, without its fraction.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
fn whole(value: f64) -> u64 {
    value as u64
}

/// What a node was like within a stretch of time up to now. Nothing of one without a name.
async fn points(store: &Store, node: &Document, span: Span) -> Result<Vec<NodePoint>, StoreError> {
    let Ok(name) = node.get_str("node") else { return Ok(Vec::new()) };
    store.node_series(&NodeName::new(name), span.since(store.now()), span.step()).await
}

fn chart_of(of: Of, span: Span, points: &[NodePoint]) -> Value {
    let values: Vec<Option<f64>> = points.iter().map(of.value).collect();
    let every = span.every().max(Duration::from_secs(10));
    let series = [(of.title, "area", "accent", json!(values))];
    drawn(points.iter().map(|point| point.at), (of.unit, every, words(of, span, points)), series)
}

fn words(of: Of, span: Span, points: &[NodePoint]) -> String {
    let values: Vec<f64> = points.iter().filter_map(of.value).collect();
    let Some(last) = values.last() else {
        return format!("Nothing was noted within {}.", span.words());
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let [least, most, last] = [least, most, *last].map(of.words);
    format!("{least} to {most} within {}, {last} at last.", span.words())
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;
    use crate::ui::live::assert_on_page;
    use crate::ui::nodes::Now;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn facts(node: Document, tasks: Vec<Document>) -> Facts {
        let queue = bson::oid::ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap();
        Facts {
            node: NodeRow::of(0, &node, &Now { server: NOW, host: NOW }),
            document: node,
            tasks,
            more: true,
            failed: vec![doc! {
                "_id": bson::oid::ObjectId::parse_str("6b0003bb686c8275d8013335").unwrap(), "queue": queue, "status": 2,
                "params": { "command": "<false>" }, "mtime": NOW,
            }],
            hours: std::sync::Arc::default(),
            queues: [(queue, "<mail>".to_owned())].into(),
            titles: Titles::default(),
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
    fn it_is_asked_before_what_runs_is_interrupted() {
        let mut drained = node();
        drained.insert("draining", true);
        let drained = html(&facts(drained, tasks()));
        assert!(drained.contains("hx-confirm=\"Move what runs on &#60;vm&#62; elsewhere?"), "{drained}");
        assert!(!html(&facts(node(), tasks())).contains("Move what runs"));
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
        let parts = facts.parts().unwrap();
        assert!(parts.len() >= 4);
        assert_on_page(&parts, &html);
    }

    fn point(at: i64, load: Option<f64>) -> NodePoint {
        let memory_available = load.map(|load| load * 1e9);
        NodePoint {
            at: DateTime::from_millis(at * 1000),
            running: load.map(f64::ceil),
            load,
            memory_available,
        }
    }

    #[test]
    fn what_was_not_noted_is_a_gap() {
        let points = [point(60, Some(0.25)), point(120, None), point(180, Some(1.5))];
        let [running, load, memory] = CHARTS;
        let shown = chart_of(load, Span::Hour, &points);
        assert_eq!(shown["times"], json!([60, 120, 180]));
        assert_eq!(shown["series"][0]["values"], json!([0.25, null, 1.5]));
        assert_eq!(shown["words"], "0.25 to 1.50 within the last hour, 1.50 at last.");
        assert_eq!(words(running, Span::Day, &points), "1.0 to 2.0 within the last 24 hours, 2.0 at last.");
        assert!(words(memory, Span::Hour, &points).starts_with("238 MiB to 1.3 GiB within"));
        assert_eq!(words(load, Span::Week, &[point(0, None)]), "Nothing was noted within the last 7 days.");
    }

    #[test]
    fn there_is_a_picture_without_script() {
        let odd = [point(0, Some(f64::NAN)), point(60, Some(-1.0)), point(120, Some(f64::INFINITY))];
        for chart in charts_of(("/nodes/n".to_owned(), "/tasks?node=n".to_owned()), Span::Hour, &odd).charts {
            assert_eq!(Of::named(chart.of).name, chart.of);
            assert!(chart.picture.render().is_ok());
        }
    }
}
