//! The versions of a queue's plugin: which nodes have which, and which of them runs its tasks.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::explain::Reader;
use disbatch_core::model::{Queue, Version};
use disbatch_core::plugin::VERSIONS;

use crate::ui::node_state::{NodeState, Now};
use crate::ui::plain;

/// The panel; nothing in it where there is nothing to choose.
#[derive(Debug, Template)]
#[template(path = "queue/versions.html")]
pub(super) struct Versions {
    /// The queue's id.
    queue: String,
    /// What messages call it.
    name: String,
    pinned: Option<Version>,
    known: Vec<Known>,
    /// Whether the page's reader may know of nodes.
    sees_nodes: bool,
}

impl HtmlSafe for Versions {}

/// A version that can be chosen.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    version: Version,
    /// The nodes that are alive and have it.
    nodes: BTreeSet<String>,
    is_pinned: bool,
}

impl Versions {
    /// Those of a queue, of which `reader` may know that nodes have them, and maybe which.
    pub fn of(queue: &Queue, (nodes, now): (&[Document], &Now), reader: Reader) -> Self {
        let pinned = queue.pinned_version().ok().flatten();
        let plugin = plain(queue.plugin.as_ref());
        let mut on: BTreeMap<Version, BTreeSet<String>> = BTreeMap::new();
        for node in nodes.iter().filter(|node| NodeState::of(node, now) == NodeState::Alive) {
            for version in versions_of(node, &plugin) {
                on.entry(version).or_default().insert(plain(node.get("node")));
            }
        }
        if let Some(pinned) = &pinned {
            on.entry(pinned.clone()).or_default();
        }
        let known = |(version, nodes): (Version, BTreeSet<String>)| Known {
            is_pinned: pinned.as_ref() == Some(&version),
            nodes,
            version,
        };
        let known = on.into_iter().map(known).collect();
        let (id, name) = (queue.id.to_string(), crate::ui::names::label(queue));
        Self { queue: id, name, pinned, known, sees_nodes: reader == Reader::OfAll }
    }

    /// Whether there is anything to choose, or to take back.
    fn is_shown(&self) -> bool {
        self.pinned.is_some() || self.known.len() > 1
    }
}

impl Known {
    /// Which nodes have it.
    fn words(&self) -> String {
        const NAMED: usize = 5;
        let names: Vec<&str> = self.nodes.iter().take(NAMED).map(String::as_str).collect();
        match self.nodes.len() {
            count if count > NAMED => format!("{count} nodes"),
            _ => names.join(", "),
        }
    }
}

/// The versions of a plugin that a node says it has.
fn versions_of(node: &Document, plugin: &str) -> impl Iterator<Item = Version> {
    let listed = node.get_array(VERSIONS).map(Vec::as_slice).unwrap_or_default();
    let of_plugin = listed.iter().filter_map(Bson::as_str).filter_map(|text| text.split_once('@'));
    of_plugin.filter(move |(name, _)| *name == plugin).filter_map(|(_, version)| version.parse().ok())
}
