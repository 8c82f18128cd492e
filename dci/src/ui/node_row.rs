//! A node in a list: what its entry says, as far as it goes.

use bson::{Bson, Document};
use disbatch_core::model::{Count, Labels, Node};
use disbatch_core::node::Stats;

use crate::ui::bulk::encoded;
use crate::ui::host::{self, Memory};
use crate::ui::node_state::{NodeState, Now};
use crate::ui::parts::{When, cut};
use crate::ui::plain;

/// What rows of nodes show.
#[derive(Debug)]
pub struct NodeRow {
    /// The id of its element.
    pub key: String,
    /// Where its page is; nothing if it has no name and no id.
    pub place: Option<String>,
    /// As stored.
    pub name: String,
    /// The same for labels and messages.
    pub short: String,
    /// How it is doing.
    pub state: NodeState,
    /// How many tasks it runs; nothing for one of Perl's.
    pub running: String,
    /// How many it may run.
    pub limit: Option<u64>,
    /// How busy its processors are.
    pub load: String,
    /// How much of its memory is in use.
    pub memory: Option<Memory>,
    /// How many plugins it has, if it says so.
    pub plugins: Option<usize>,
    /// What it is labelled with.
    pub labels: String,
    /// The release of its DEN.
    pub version: String,
    /// When it was last seen.
    pub seen: When,
    /// Whether an operator wants it to claim nothing more.
    pub draining: bool,
    /// Whether a DEN works there that knows how to drain.
    pub changeable: bool,
}

impl NodeRow {
    /// The row of a node, the `number`th of the list.
    pub fn of(number: usize, document: &Document, now: &Now) -> Self {
        let seen = document.get("timestamp");
        // An entry without a usable id is shown as far as it goes.
        let node: Option<Node> = bson::deserialize_from_document(document.clone()).ok();
        let id = document.get_object_id("_id").map(|id| id.to_hex());
        let stats = Stats::of_node(document);
        let name = plain(document.get("node"));
        Self {
            key: id.as_ref().map_or_else(|_| format!("node-odd-{number}"), |id| format!("node-{id}")),
            changeable: id.is_ok() && node.as_ref().is_some_and(Node::is_ours),
            place: place(document),
            short: cut(&name, 80),
            name,
            state: NodeState::of_node(node.as_ref(), seen, now),
            running: plain(document.get("running")),
            limit: document.get("maxthreads").and_then(|limit| Count(limit.clone()).get()),
            load: host::load(&stats),
            memory: Memory::of(&stats),
            plugins: document.get("plugins").and_then(Bson::as_array).map(Vec::len),
            labels: Labels::of(document.get_document("labels").ok()).to_string(),
            version: plain(document.get("version")),
            seen: When::of(seen),
            draining: node.is_some_and(|node| node.is_draining()),
        }
    }
}

/// Where the page of a node is: by its id, or else by its name.
pub fn place(document: &Document) -> Option<String> {
    let name = || document.get_str("node").ok().filter(|name| !name.is_empty()).map(encoded);
    let id = document.get_object_id("_id").ok().map(|id| id.to_hex()).or_else(name)?;
    Some(format!("/nodes/{id}"))
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
        assert_eq!((known.key, known.place), (format!("node-{id}"), Some(format!("/nodes/{id}"))));
        assert_eq!((known.short.chars().count(), known.limit, known.plugins), (81, Some(5), Some(1)));
    }
}
