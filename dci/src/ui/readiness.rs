//! What a queue lacks for its tasks to run: a plugin, or a node that has it.

use bson::Document;
use disbatch_core::model::{PluginName, Queue};
use disbatch_core::plugin::lacks;

use crate::ui::node_state::NodeState;

#[derive(Debug, PartialEq, Eq)]
pub enum Lacking {
    /// It has no plugin.
    Plugin,
    /// It has one that can be none, for this reason.
    UsablePlugin(String),
    /// No node is alive that claims tasks.
    Node,
    /// None of those has all that it needs: not this plugin, or not in this version.
    NodeWith(PluginName),
}

impl Lacking {
    /// The same in a few words.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Plugin => "no plugin",
            Self::UsablePlugin(_) => "no usable plugin",
            Self::Node => "no node is alive",
            Self::NodeWith(plugin) if plugin.version().is_some() => "no node has its version",
            Self::NodeWith(_) => "no node has its plugin",
        }
    }

    /// What `queue` lacks, if that is known: which plugins Perl's nodes have is not.
    pub fn of<'a>(queue: &Queue, nodes: impl Iterator<Item = (NodeState, &'a Document)>) -> Option<Self> {
        let needed = match queue.needed_plugins() {
            Ok(needed) if needed.is_empty() => return Some(Self::Plugin),
            Ok(needed) => needed,
            Err(error) => return Some(Self::UsablePlugin(error.to_string())),
        };
        let mut lacking = None;
        for (_, node) in nodes.filter(|(state, _)| *state == NodeState::Alive) {
            match lacks(node, &needed).map(|lacking| lacking.into_iter().next()) {
                Some(Some(plugin)) => lacking = Some(plugin),
                Some(None) | None => return None,
            }
        }
        Some(lacking.map_or(Self::Node, Self::NodeWith))
    }
}

/// What a queue needs, in words: `its plugin My::Mail`, or `version 2 of its plugin My::Mail`.
pub fn its(plugin: &PluginName) -> String {
    plugin.words().replacen("the plugin", "its plugin", 1)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_queue_needs_a_plugin_and_a_node_that_has_it() {
        let queue = |fields: Document| {
            let mut document = doc! { "_id": bson::oid::ObjectId::new() };
            document.extend(fields);
            bson::deserialize_from_document::<Queue>(document).unwrap()
        };
        let of = |plugin: &str, nodes: &[(NodeState, Document)]| {
            let nodes = nodes.iter().map(|(state, node)| (*state, node));
            Lacking::of(&queue(doc! { "plugin": plugin }), nodes)
        };
        let with = |state, plugins: &[&str]| (state, doc! { "plugins": plugins.to_vec() });
        assert_eq!(Lacking::of(&queue(doc! {}), std::iter::empty()), Some(Lacking::Plugin));
        assert!(matches!(of("no; name", &[]), Some(Lacking::UsablePlugin(_))));
        assert_eq!(of("P", &[]), Some(Lacking::Node));
        assert_eq!(of("P", &[with(NodeState::Draining, &["P"])]), Some(Lacking::Node));
        let other = of("P", &[with(NodeState::Alive, &["Q"])]);
        assert_eq!(other, Some(Lacking::NodeWith("P".parse().unwrap())));
        assert_eq!(of("P", &[with(NodeState::Alive, &["Q"]), with(NodeState::Alive, &["P"])]), None);
        assert_eq!(of("P", &[(NodeState::Alive, doc! {})]), None, "what it has is not known");
    }

    #[test]
    fn a_queue_may_need_a_version() {
        let document = doc! { "_id": bson::oid::ObjectId::new(), "plugin": "P", "version": "2" };
        let queue: Queue = bson::deserialize_from_document(document).unwrap();
        let node = |versions: &[&str]| doc! { "plugins": ["P"], "plugin_versions": versions.to_vec() };
        let of = |nodes: &[Document]| Lacking::of(&queue, nodes.iter().map(|node| (NodeState::Alive, node)));
        let lacking = of(&[node(&["P@1"]), doc! { "plugins": ["P"] }]).unwrap();
        assert_eq!(lacking.word(), "no node has its version");
        assert!(matches!(lacking, Lacking::NodeWith(plugin) if plugin.as_str() == "P@2"));
        assert_eq!(of(&[node(&["P@1"]), node(&["P@1", "P@2"])]), None);
    }
}
