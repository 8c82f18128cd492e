//! Nodes in a list: what their entries say, as far as they go.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::model::{Count, Labels, Node};
use disbatch_core::node::Stats;

use crate::error::HttpError;
use crate::ui::bulk::encoded;
use crate::ui::live::Part;
use crate::ui::node_state::{NodeState, Now};
use crate::ui::node_work::{Hours, Load, Work};
use crate::ui::parts::{When, bytes, cut};
use crate::ui::plain;

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
        Part::table("nodes", self, &self.rows, |row| row.key.clone())
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
    /// How many tasks it runs; nothing for one of Perl's.
    pub running: String,
    /// How many it may run.
    pub limit: Option<u64>,
    pub load: Load,
    pub memory: Option<Memory>,
    /// How many plugins it has, if it says so.
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
    /// The page that it is on.
    const fn list(&self) -> &'static str {
        if self.full { "/nodes" } else { "/" }
    }

    /// What stands below its name: release, plugins and labels, as far as they are known.
    fn about(&self) -> String {
        let plugins =
            self.plugins.map(|count| format!("{count} plugin{}", if count == 1 { "" } else { "s" }));
        let all = [self.version.clone(), plugins.unwrap_or_default(), self.labels.clone()];
        all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// The row of a node, the `number`th of the list.
    pub fn of(number: usize, document: &Document, now: &Now) -> Self {
        let seen = document.get("timestamp");
        // An entry without a usable id is shown as far as it goes.
        let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
        let id = document.get_object_id("_id").map(|id| id.to_hex());
        let stats = Stats::of_node(document);
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
            limit: document.get("maxthreads").and_then(|limit| Count(limit.clone()).get()),
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

/// How much of its memory is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub percent: u64,
    pub words: String,
}

impl Memory {
    /// What the host says, if it does.
    pub fn of(stats: &Stats) -> Option<Self> {
        let all = stats.memory.filter(|all| *all > 0)?;
        let used = all.saturating_sub(stats.memory_available?);
        let percent = u64::try_from(u128::from(used) * 100 / u128::from(all)).unwrap_or(100);
        Some(Self { percent, words: format!("{} of {}", bytes(used), bytes(all)) })
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

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

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn html(node: Document) -> String {
        NodeTable::of(&[node], &Now { server: NOW, host: NOW }, None).render().unwrap()
    }

    #[test]
    fn a_row_shows_a_node_and_what_can_be_changed() {
        let html = html(doc! {
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
        let html = html(doc! { "node": "old", "timestamp": DateTime::from_millis(1_700_000_000_000) });
        assert!(
            html.contains("<time datetime=\"2023-11-14T22:13:20Z\">") && html.contains(">gone<"),
            "{html}"
        );
    }

    #[test]
    fn odd_nodes_are_shown_as_far_as_they_go() {
        let nasty = format!("<script>'\"{}", "x".repeat(10_000));
        let html =
            html(doc! { "node": &nasty, "stats": { "memory": 0, "memory_available": 5, "load": "x" } });
        assert!(html.contains("<tr id=\"node-odd-0\">") && html.contains(">never<"), "{html}");
        assert!(html.contains("&#60;script&#62;&#39;&#34;x") && !html.contains("<script"), "{html}");
        assert!(
            !html.contains("<form class=\"change\"") && html.contains("no limit") && !html.contains("<meter"),
            "{html}"
        );
        let empty = NodeTable::of(&[], &Now { server: NOW, host: NOW }, None).render().unwrap();
        assert!(empty.contains("No node has been seen yet."));
    }
}
