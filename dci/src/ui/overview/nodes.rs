//! The nodes of the overview.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::Document;
use disbatch_core::model::{Count, Node};
use disbatch_core::node::Stats;

use crate::error::HttpError;
use crate::ui::live::Part;
use crate::ui::node_state::{NodeState, Now};
use crate::ui::parts::{When, bytes, cut};
use crate::ui::plain;

/// All of them.
#[derive(Debug, Template)]
#[template(path = "overview/nodes.html")]
pub struct NodeTable {
    rows: Vec<NodeRow>,
}

impl HtmlSafe for NodeTable {}

#[derive(Debug, Template)]
#[template(path = "overview/node.html")]
struct NodeRow {
    /// The id of its element.
    key: String,
    /// Its own id; nothing if it has none that can be used.
    id: String,
    name: String,
    /// For labels and messages.
    short: String,
    /// When it was last seen, if that is not now.
    seen: When,
    state: NodeState,
    /// What its DEN said; nothing for one of Perl's.
    running: String,
    limit: Option<u64>,
    load: String,
    memory: Option<Memory>,
    /// Whether an operator wants it to claim nothing more.
    draining: bool,
    /// Whether a DEN works there that knows how to drain.
    changeable: bool,
}

impl HtmlSafe for NodeRow {}

/// How much of its memory is in use.
#[derive(Debug)]
struct Memory {
    percent: u64,
    words: String,
}

impl NodeTable {
    /// A table of `nodes`.
    pub fn of(nodes: &[Document], now: &Now) -> Self {
        Self { rows: nodes.iter().enumerate().map(|(number, node)| row(number, node, now)).collect() }
    }

    /// The table, whenever there are others, and each of them.
    ///
    /// # Errors
    /// They cannot be rendered.
    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let keys: Vec<&str> = self.rows.iter().map(|row| row.key.as_str()).collect();
        let table = Part::keyed("nodes", self, &keys.join(","));
        let rows = self.rows.iter().map(|row| Ok(Part::new(row.key.clone(), row)?.within("nodes")));
        std::iter::once(table).chain(rows).collect()
    }
}

fn row(number: usize, document: &Document, now: &Now) -> NodeRow {
    let seen = document.get("timestamp");
    // An entry without a usable id is shown as far as it goes.
    let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
    let state = NodeState::of_node(node.as_ref(), seen, now);
    let id = document.get_object_id("_id").map(|id| id.to_hex());
    let stats = Stats::of_node(document);
    NodeRow {
        key: id.as_ref().map_or_else(|_| format!("node-odd-{number}"), |id| format!("node-{id}")),
        changeable: id.is_ok() && node.as_ref().is_some_and(Node::is_ours),
        id: id.unwrap_or_default(),
        short: cut(&plain(document.get("node")), 80),
        name: plain(document.get("node")),
        // Those that work are seen all the time, and are not to be sent each time.
        seen: When::of(seen.filter(|_| !state.is_up())),
        state,
        running: plain(document.get("running")),
        limit: document.get("maxthreads").and_then(|limit| Count(limit.clone()).get()),
        load: load(&stats),
        memory: memory(&stats),
        draining: node.is_some_and(|node| node.is_draining()),
    }
}

fn load(stats: &Stats) -> String {
    match (stats.load, stats.cpus) {
        (Some(load), Some(cpus)) => format!("{load:.2} of {cpus}"),
        (Some(load), None) => format!("{load:.2}"),
        (None, _) => String::new(),
    }
}

fn memory(stats: &Stats) -> Option<Memory> {
    let all = stats.memory.filter(|all| *all > 0)?;
    let used = all.saturating_sub(stats.memory_available?);
    let percent = u64::try_from(u128::from(used) * 100 / u128::from(all)).unwrap_or(100);
    Some(Memory { percent, words: format!("{} of {}", bytes(used), bytes(all)) })
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn html(node: Document) -> String {
        NodeTable::of(&[node], &Now { server: NOW, host: NOW }).render().unwrap()
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
            "<td class=\"time\">now</td>",
            "aria-checked=\"true\" name=\"draining\" value=\"true\">Claim<",
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
        assert!(!html.contains("<form") && html.contains("no limit") && !html.contains("<meter"), "{html}");
        let empty = NodeTable::of(&[], &Now { server: NOW, host: NOW }).render().unwrap();
        assert!(empty.contains("No node has been seen yet."));
    }
}
