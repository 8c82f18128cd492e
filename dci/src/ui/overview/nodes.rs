//! The nodes of the overview.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::Document;

use crate::error::HttpError;
use crate::ui::live::Part;
use crate::ui::node_row::NodeRow;
use crate::ui::node_state::Now;

/// All of them.
#[derive(Debug, Template)]
#[template(path = "overview/nodes.html")]
pub struct NodeTable {
    rows: Vec<Row>,
}

impl HtmlSafe for NodeTable {}

#[derive(Debug, Template)]
#[template(path = "overview/node.html")]
struct Row {
    node: NodeRow,
}

impl HtmlSafe for Row {}

impl NodeTable {
    /// A table of `nodes`.
    pub fn of(nodes: &[Document], now: &Now) -> Self {
        let row = |(number, node)| Row { node: NodeRow::of(number, node, now) };
        Self { rows: nodes.iter().enumerate().map(row).collect() }
    }

    /// The table, whenever there are others, and each of them.
    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Part::table("nodes", self, &self.rows, |row| row.node.key.clone())
    }
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
        assert!(
            !html.contains("<form class=\"change\"") && html.contains("no limit") && !html.contains("<meter"),
            "{html}"
        );
        let empty = NodeTable::of(&[], &Now { server: NOW, host: NOW }).render().unwrap();
        assert!(empty.contains("No node has been seen yet."));
    }
}
