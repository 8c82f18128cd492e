//! `GET /nodes` for people: the machines, how they are doing, and how much they may run.
//!
//! The entry of a node tells what its DEN said last, which for one that has ended is of another time.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, DateTime, Document};
use disbatch_core::model::{Labels, Node, count, date_time};
use disbatch_core::node::{Stats, stats_of};
use disbatch_core::store::{Store, StoreError};
use disbatch_values::words;

use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::{Link, encoded};
use crate::ui::node_work::{Hours, Load, Work, last_hour};
use crate::ui::parts::{Pill, When, bytes, counted, cut};
use crate::ui::{self, Rendered, plain};

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    table: NodeTable,
}

pub async fn render(state: Data<State>) -> Rendered {
    ui::render(&NodesPage { table: table(&state).await? })
}

/// What of the page of nodes changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get,
    path = "/ui/nodes",
    tag = "service",
    operation_id = "nodesEvents",
    responses(EventStream, OfFixed)
)]
pub async fn live(request: HttpRequest, state: Data<State>) -> HttpResponse {
    live::respond(&request, &state, "nodes", async |state: &State| table(state).await?.parts())
}

async fn table(state: &State) -> Result<NodeTable, HttpError> {
    let (nodes, now) = as_they_are(state, state.store.list_nodes().await?).await?;
    let hours = last_hour(state, &nodes).await?;
    Ok(NodeTable::of(&nodes, &now, Some(&hours)))
}

#[derive(Debug, Template)]
#[template(path = "nodes/table.html")]
pub struct NodeTable {
    rows: Vec<NodeRow>,
    /// Whether it is the list of nodes: the overview tells less.
    full: bool,
}

impl HtmlSafe for NodeTable {}

impl NodeTable {
    /// The list of nodes says what each did, too, which `hours` has.
    pub fn of(nodes: &[Document], now: &Now, hours: Option<&Hours>) -> Self {
        let full = hours.is_some();
        let row = |(number, node)| {
            let work = hours.map(|hours| Work::of(hours, node)).unwrap_or_default();
            NodeRow { full, work, ..NodeRow::of(number, node, now) }
        };
        Self { rows: nodes.iter().enumerate().map(row).collect(), full }
    }

    /// The table, whenever there are others, and each of them.
    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Part::table(self, &self.rows)
    }
}

#[derive(Debug, Template)]
#[template(path = "nodes/row.html")]
pub struct NodeRow {
    full: bool,
    work: Work,
    /// Whether its entry can be used.
    pub is_known: bool,
    /// The id of its element.
    pub key: String,
    /// Where its page is; nothing if it has no name and no id.
    pub place: Option<String>,
    /// As stored.
    pub name: String,
    /// The same for labels and messages.
    pub short: String,
    pub state: NodeState,
    /// How many tasks are claimed or running in its name.
    pub running: String,
    pub limit: Option<u64>,
    pub load: Load,
    pub memory: Option<Memory>,
    pub plugins: Option<usize>,
    pub labels: String,
    /// The release of its DEN.
    pub version: String,
    pub seen: When,
    /// Whether an operator wants it to claim nothing more.
    pub draining: bool,
    /// And what runs to go on elsewhere.
    pub interrupts: bool,
    /// Whether a DEN works there that knows how to drain.
    pub changeable: bool,
}

impl HtmlSafe for NodeRow {}

impl NodeRow {
    const fn list(&self) -> &'static str {
        if self.full { "/nodes" } else { "/" }
    }

    /// What stands below its name: release, plugins and labels, as far as they are known.
    fn about(&self) -> String {
        let plugins = self.plugins.map(|count| counted(count, "plugin"));
        let all = [self.version.clone(), plugins.unwrap_or_default(), self.labels.clone()];
        all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// The row of a node, the `number`th of the list.
    pub fn of(number: usize, document: &Document, now: &Now) -> Self {
        let seen = document.get("timestamp");
        // An entry without a usable id is shown as far as it goes.
        let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
        let id = document.get_object_id("_id").map(|id| id.to_hex());
        let stats = stats_of(document);
        let name = plain(document.get("node"));
        Self {
            full: false,
            work: Work::default(),
            is_known: node.is_some(),
            key: id.as_ref().map_or_else(|_| format!("node-odd-{number}"), |id| format!("node-{id}")),
            changeable: id.is_ok() && node.as_ref().is_some_and(Node::is_ours),
            place: place(document),
            short: cut(&name, 80),
            name,
            state: NodeState::of_node(node.as_ref(), seen, now),
            running: plain(document.get("running")),
            limit: document.get("maxthreads").and_then(count),
            load: Load::of(stats.load, stats.cpus),
            memory: Memory::of(&stats),
            plugins: document.get("plugins").and_then(Bson::as_array).map(Vec::len),
            labels: Labels::of(document.get_document("labels").ok()).to_string(),
            version: plain(document.get("version")),
            seen: When::of(seen),
            draining: node.as_ref().is_some_and(Node::is_draining),
            interrupts: node.as_ref().is_some_and(Node::interrupts),
        }
    }
}

/// Where the page of a node is: by its id, or else by its name.
pub fn place(document: &Document) -> Option<String> {
    let name = || document.get_str("node").ok().filter(|name| !name.is_empty()).map(encoded);
    let id = document.get_object_id("_id").ok().map(|id| id.to_hex()).or_else(name)?;
    Some(format!("/nodes/{id}"))
}

pub fn link(document: &Document) -> Link {
    Link { name: plain(document.get("node")), address: place(document) }
}

/// How much of its memory is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub percent: u64,
    pub words: String,
}

impl Memory {
    pub fn of(stats: &Stats) -> Option<Self> {
        let all = stats.memory.filter(|all| *all > 0)?;
        let used = all.saturating_sub(stats.memory_available?);
        let percent = u64::try_from(u128::from(used) * 100 / u128::from(all)).unwrap_or(100);
        Some(Self { percent, words: format!("{} of {}", bytes(used), bytes(all)) })
    }
}

/// A node of Perl's that was not seen for so many seconds is shown as gone, as `/monitoring` counts.
const STALE_SECONDS: i64 = 60;

/// The time by the two clocks that nodes' times are of.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// That of the database.
    pub server: DateTime,
    pub host: DateTime,
}

impl Now {
    pub async fn read(store: &Store) -> Result<Self, StoreError> {
        Ok(Self { server: store.server_time().await?, host: store.now() })
    }
}

words! {
    /// How a node is doing, for people.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NodeState {
        /// Its DEN works.
        Alive = "alive",
        /// It works, and claims nothing more.
        Draining = "draining",
        /// Its DEN has said that it ends.
        Stopped = "stopped",
        /// Its DEN was not heard of for longer than its lease.
        Dead = "dead",
        /// One of Perl's that was not heard of for a minute.
        Gone = "gone",
    }
}

impl NodeState {
    /// By its heartbeat and the clock of the server; by the time that it told for one of Perl's.
    pub fn of(document: &Document, now: &Now) -> Self {
        let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
        Self::of_node(node.as_ref(), document.get("timestamp"), now)
    }

    /// The same of a node that has been read, if it could be, and the time that it told.
    pub fn of_node(node: Option<&Node>, seen: Option<&Bson>, now: &Now) -> Self {
        let ours = node.filter(|node| node.is_ours());
        let alive = match (ours, ours.and_then(Node::last_beat)) {
            (_, Some((seen, lease))) => {
                let silence = now.server.timestamp_millis().saturating_sub(seen.timestamp_millis());
                silence <= i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)
            }
            (Some(_), None) => return Self::Stopped,
            (None, None) => {
                let at = seen.and_then(date_time);
                let age =
                    at.map(|at| now.host.timestamp_millis().saturating_sub(at.timestamp_millis()) / 1000);
                age.is_some_and(|age| age <= STALE_SECONDS)
            }
        };
        let draining = ours.is_some_and(|node| node.is_draining() || node.state() == Some("draining"));
        match (alive, draining) {
            (false, _) if ours.is_none() => Self::Gone,
            (false, _) => Self::Dead,
            (true, true) => Self::Draining,
            (true, false) => Self::Alive,
        }
    }

    /// Whether tasks may run there.
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Alive | Self::Draining)
    }

    pub const fn pill(self) -> Pill {
        Pill { tone: self.as_str(), word: self.as_str() }
    }
}

/// The entries, with `state` by heartbeats and the clock of the server, and as `running` how many tasks are claimed or running in their names, also by
/// runners that outlive the DEN that has started them; and when that was so.
pub async fn as_they_are(
    state: &State,
    mut nodes: Vec<Document>,
) -> Result<(Vec<Document>, Now), StoreError> {
    let now = Now::read(&state.store).await?;
    let names = nodes.iter().filter_map(|node| node.get("node").cloned()).collect();
    let running = state.store.tasks_by_node(names).await?;
    for node in &mut nodes {
        let is = NodeState::of(node, &now);
        let name = node.get("node").and_then(Bson::as_str).unwrap_or_default();
        let tasks = running.get(name).copied().unwrap_or(0);
        node.insert("state", is.pill().word);
        node.insert("running", i64::try_from(tasks).unwrap_or(i64::MAX));
        if !is.is_up() {
            node.remove("rival");
        }
    }
    Ok((nodes, now))
}

pub async fn as_it_is(state: &State, node: Document) -> Result<(Document, Now), StoreError> {
    let (mut nodes, now) = as_they_are(state, vec![node]).await?;
    Ok((nodes.pop().unwrap_or_default(), now))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::ui::live::assert_on_page;

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

    #[test]
    fn entries_of_any_shape_are_rows() {
        let now = DateTime::from_millis(1_795_163_067_344);
        let of = |node: Document| NodeRow::of(3, &node, &Now { server: now, host: now });
        let odd = of(doc! { "node": "a/<b>", "plugins": "none", "stats": 5, "maxthreads": [] });
        assert_eq!((odd.key.as_str(), odd.place.as_deref()), ("node-odd-3", Some("/nodes/a%2F%3Cb%3E")));
        assert_eq!((odd.plugins, odd.limit, odd.changeable), (None, Some(0), false));
        assert_eq!(of(doc! { "node": 5 }).place, None);
        let id = bson::oid::ObjectId::from_bytes([1; 12]);
        let known = of(doc! { "_id": id, "node": "n".repeat(99), "maxthreads": "5", "plugins": ["A"] });
        assert_eq!((known.about().as_str(), odd.about().as_str()), ("1 plugin", ""));
        assert_eq!((known.key, known.place), (format!("node-{id}"), Some(format!("/nodes/{id}"))));
        assert_eq!((known.short.chars().count(), known.limit, known.plugins), (81, Some(5), Some(1)));
    }

    #[test]
    fn a_host_is_told_as_far_as_it_is_known() {
        let known = Stats {
            load: Some(1.256),
            cpus: Some(4),
            memory: Some(8 << 30),
            memory_available: Some(2 << 30),
        };
        assert_eq!(Memory::of(&known), Some(Memory { percent: 75, words: "6.0 GiB of 8.0 GiB".into() }));
        for odd in [Stats { memory: Some(0), ..known }, Stats { memory_available: None, ..known }] {
            assert_eq!(Memory::of(&odd), None);
        }
    }

    fn row_html(node: Document) -> String {
        NodeTable::of(&[node], &Now { server: NOW, host: NOW }, None).render().unwrap()
    }

    #[test]
    fn a_row_shows_a_node_and_what_can_be_changed() {
        let html = row_html(doc! {
            "_id": bson::oid::ObjectId::parse_str("6b0003b956635706337b691a").unwrap(), "node": "<vm>",
            "timestamp": NOW, "seen": NOW, "lease_ms": 30_000, "instance": "i", "maxthreads": "5", "running": 3,
            "stats": { "load": 1.256, "cpus": 4, "memory": 8_589_934_592_i64, "memory_available": 2_147_483_648_i64 },
        });
        for part in [
            "<tr id=\"node-6b0003b956635706337b691a\">",
            "href=\"/nodes/6b0003b956635706337b691a\">&#60;vm&#62;</a>",
            "<span class=\"status alive\">alive</span>",
            "name=\"maxthreads\" value=\"5\"",
            "1.26 of 4",
            "value=\"75\"",
            "6.0 GiB of 8.0 GiB",
            "<td class=\"time\" data-label=\"Last seen\">now</td>",
            "aria-checked=\"true\" name=\"draining\" value=\"true\">Take new tasks<",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<vm>"), "{html}");
    }

    #[test]
    fn a_node_that_is_gone_says_since_when() {
        let html = row_html(doc! { "node": "old", "timestamp": DateTime::from_millis(1_700_000_000_000) });
        assert!(
            html.contains("<time datetime=\"2023-11-14T22:13:20Z\">") && html.contains(">gone<"),
            "{html}"
        );
    }

    #[test]
    fn rows_of_odd_nodes_are_shown_as_far_as_they_go() {
        let nasty = format!("<script>'\"{}", "x".repeat(10_000));
        let html =
            row_html(doc! { "node": &nasty, "stats": { "memory": 0, "memory_available": 5, "load": "x" } });
        assert!(html.contains("<tr id=\"node-odd-0\">") && html.contains(">never<"), "{html}");
        assert!(html.contains("&#60;script&#62;&#39;&#34;x") && !html.contains("<script"), "{html}");
        assert!(
            !html.contains("<form class=\"change\"") && html.contains("no limit") && !html.contains("<meter"),
            "{html}"
        );
        let empty = NodeTable::of(&[], &Now { server: NOW, host: NOW }, None).render().unwrap();
        assert!(empty.contains("No node has been seen yet."));
    }

    #[test]
    fn a_node_is_as_its_den_says_and_the_server_counts() {
        let (now, late) = (DateTime::from_millis(1_795_163_067_344), DateTime::from_millis(0));
        let both = Now { server: now, host: now };
        let word = |fields: Document| {
            let mut node = doc! { "_id": bson::oid::ObjectId::new(), "node": "n", "timestamp": now };
            node.extend(fields);
            NodeState::of(&node, &both).pill().word
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
        assert_eq!(NodeState::of(&doc! { "node": 5 }, &both), NodeState::Gone);
    }
}
