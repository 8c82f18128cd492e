//! What a queue lacks for its tasks to run: a plugin, or a node that has it.

use bson::{Bson, Document};
use disbatch_core::model::{PluginName, Queue};

use crate::ui::node_state::NodeState;

#[derive(Debug, PartialEq, Eq)]
pub enum Lacking {
    /// It has no plugin.
    Plugin,
    /// It has one that can be none, for this reason.
    UsablePlugin(String),
    /// No node is alive that claims tasks.
    Node,
    /// None of those has this plugin.
    NodeWith(PluginName),
}

impl Lacking {
    /// The same in a few words.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Plugin => "no plugin",
            Self::UsablePlugin(_) => "no usable plugin",
            Self::Node => "no node is alive",
            Self::NodeWith(_) => "no node has its plugin",
        }
    }

    /// What `queue` lacks, if that is known: which plugins Perl's nodes have is not.
    pub fn of<'a>(queue: &Queue, nodes: impl Iterator<Item = (NodeState, &'a Document)>) -> Option<Self> {
        let plugin = match queue.plugin_name() {
            Ok(Some(plugin)) => plugin,
            Ok(None) => return Some(Self::Plugin),
            Err(error) => return Some(Self::UsablePlugin(error.to_string())),
        };
        let may_have = |node: &Document| match node.get("plugins").and_then(Bson::as_array) {
            Some(plugins) => plugins.iter().any(|found| found.as_str() == Some(plugin.as_str())),
            None => true,
        };
        let mut up = nodes.filter(|(state, _)| *state == NodeState::Alive).peekable();
        if up.peek().is_none() {
            return Some(Self::Node);
        }
        let has_one = up.any(|(_, node)| may_have(node));
        (!has_one).then_some(Self::NodeWith(plugin))
    }
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
}
