//! Whose turn it is: by what it is decided which task is claimed next.

use disbatch_core::model::Queue;

use super::{Control, Group, Setting};
use crate::ui::plain;

/// The policy, and what there is to be said about it.
pub(super) fn turns(queue: &Queue) -> Group {
    let field = |name: &str| queue.rest.get(name);
    let policies = [
        ("", "not set: by the order above"),
        ("fifo", "fifo: the oldest first"),
        ("lifo", "lifo: the newest first"),
        ("priority", "priority: the highest priority first"),
        ("fair", "fair: groups share it"),
    ];
    let shares = [
        ("", "not set: turns"),
        ("turns", "turns: as many tasks for each group"),
        ("use", "use: as much time for each group"),
    ];
    let settings = vec![
        Setting::choice(
            ("policy", "Policy"),
            field("policy"),
            &policies,
            "By what it is decided which task is next. Perl's DENs go by the order.",
        ),
        line(
            queue,
            ("scheme", "Scheme"),
            "highest priority first",
            "How often each class of priorities is preferred: 2,1 prefers those with a priority above 0 twice, then the others once.",
        ),
        Setting::choice(
            ("share", "Shared"),
            field("share"),
            &shares,
            "What the groups of a fair queue share.",
        ),
        line(
            queue,
            ("weights", "Weights"),
            "1 for each group",
            "Which groups get how much more than others, as JSON: {\"acme\": 3} lets that one have 3 tasks in each of its turns.",
        ),
        Setting::number(
            ("group_threads", "Tasks of a group"),
            field("group_threads"),
            ("1", "1", "no limit"),
            "How many tasks of a group may run at once, on all nodes together.",
        ),
        Setting::seconds(
            ("half_life", "Half-life of use (s)"),
            field("half_life"),
            "3600",
            "Where use is shared: after what time what a group has used counts half.",
        ),
    ];
    Group::new("turns", "Turns", "Which of its tasks is claimed next, and whose it is.", settings)
}

fn line(
    queue: &Queue,
    (name, label): (&'static str, &'static str),
    unset: &'static str,
    meaning: &'static str,
) -> Setting {
    let value = plain(queue.rest.get(name));
    Setting::new(name, label, meaning, Control::Line { value, most: 20_000, unset })
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};

    use super::*;

    fn values(fields: Document) -> Vec<(&'static str, String)> {
        let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
        queue.extend(fields);
        let group = turns(&bson::deserialize_from_document(queue).unwrap());
        group.settings.iter().map(|setting| (setting.name, setting.value())).collect()
    }

    #[test]
    fn what_is_stored_can_be_sent_again() {
        let stored = doc! {
            "policy": "fair", "scheme": [2, 1], "share": "use", "weights": { "acme/ann": 3 }, "group_threads": 4,
            "half_life": 60,
        };
        let expected = [
            ("policy", "fair"),
            ("scheme", "[2,1]"),
            ("share", "use"),
            ("weights", "{\"acme/ann\":3}"),
            ("group_threads", "4"),
            ("half_life", "60"),
        ];
        assert_eq!(values(stored), expected.map(|(name, value)| (name, value.to_owned())));
        assert!(values(doc! {}).iter().all(|(_, value)| value.is_empty()));
    }
}
