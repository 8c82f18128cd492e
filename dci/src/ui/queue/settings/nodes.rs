//! Which nodes may run its tasks.

use disbatch_core::model::{NodeSelector, Queue};

use super::{Control, Group, Setting};

/// Labels and names.
pub(super) fn nodes(queue: &Queue) -> Group {
    let selector = NodeSelector::of(queue).unwrap_or_default();
    let line = |name, label, value: String, meaning: &str| {
        Setting::new(name, label, meaning, Control::Line { value, most: 20_000, unset: "all nodes" })
    };
    let settings = vec![
        line(
            "nodes.labels",
            "Labels",
            selector.labels_text(),
            "A node must have all of these: gpu=yes, zone=a. They are labels of the nodes' configuration.",
        ),
        line(
            "nodes.names",
            "Names",
            selector.names_text(),
            "A node must have one of these names: worker1, worker2.",
        ),
    ];
    Group::new("nodes", "Nodes", "Which nodes may run its tasks. Perl's DENs do not know of it.", settings)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn labels_and_names_are_text_that_can_be_saved_again() {
        let stored = doc! { "labels": { "zone": "a", "gpu": "yes" }, "names": ["n2", "n1"] };
        let queue = doc! { "_id": ObjectId::new(), "name": "q", "nodes": stored };
        let group = nodes(&bson::deserialize_from_document(queue).unwrap());
        let values: Vec<String> = group.settings.iter().map(Setting::value).collect();
        assert_eq!(values, ["gpu=yes, zone=a", "n1, n2"]);
    }
}
