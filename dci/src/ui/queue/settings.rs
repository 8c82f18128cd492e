//! The settings of a queue: the template has what each means. Each group of them is a form of its own, so that saving one
//! does not touch what somebody else has changed in another.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::Bson;
use disbatch_core::model::{NodeSelector, Policy, Queue, number};
use disbatch_core::tags::{INDEX, stored};

use crate::ui::bulk::encoded;
use crate::ui::parts::rough;
use crate::ui::plain;

/// Settings that are one of a few words.
const WORDS: [(&str, &[(&str, &str)]); 5] = [
    (
        "sort",
        &[
            ("", "not set: the oldest first, as far as the index has it"),
            ("fifo", "fifo: the oldest first"),
            ("lifo", "lifo: the newest first"),
        ],
    ),
    (
        "policy",
        &[
            ("", "not set: by the order above"),
            ("fifo", "fifo: the oldest first"),
            ("lifo", "lifo: the newest first"),
            ("priority", "priority: the highest priority first"),
            ("fair", "fair: groups share it"),
        ],
    ),
    (
        "share",
        &[
            ("", "not set: turns"),
            ("turns", "turns: as many tasks for each group"),
            ("use", "use: as much time for each group"),
        ],
    ),
    (
        "on_orphan",
        &[("", "not set: fail"), ("fail", "fail: it is orphaned"), ("requeue", "requeue: it is tried again")],
    ),
    (
        "on_lost_lease",
        &[
            ("", "not set: keep on, or stop if orphans are requeued"),
            ("keep", "keep: the plugin goes on"),
            ("stop", "stop: the plugin is ended"),
        ],
    ),
];

#[derive(Template)]
#[template(path = "queue/settings.html")]
pub(super) struct Settings<'a> {
    pub queue: &'a Queue,
    /// Those that it may have.
    pub plugins: &'a [String],
}

impl HtmlSafe for Settings<'_> {}

impl Settings<'_> {
    /// What the control of this name has; empty if it is not set, or nothing that can be chosen.
    fn value(&self, name: &str) -> String {
        let selector = || NodeSelector::of(self.queue).unwrap_or_default();
        match name {
            "name" => self.queue.display_name(),
            "nodes.labels" => selector().labels_text(),
            "nodes.names" => selector().names_text(),
            INDEX => stored(self.stored(name)).join(", "),
            _ => {
                let value = plain(self.stored(name));
                let words = words(name);
                if words.is_empty() || words.iter().any(|(word, _)| *word == value) {
                    value
                } else {
                    String::new()
                }
            }
        }
    }

    /// What is stored of `timeout` or `rate.n`, for instance.
    fn stored(&self, name: &str) -> Option<&Bson> {
        match name.split_once('.') {
            Some((whole, part)) => self.queue.rest.get_document(whole).ok()?.get(part),
            None if name == "sort" => self.queue.sort.as_ref(),
            None if name == "plugin" => self.queue.plugin.as_ref(),
            None => self.queue.rest.get(name),
        }
    }

    /// A length of time in larger units, if it is long.
    fn now_about(&self, name: &str) -> String {
        match self.stored(name).and_then(number) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked: positive and small"
            )]
            Some(seconds) if (120.0..1e12).contains(&seconds) => {
                format!(" Now about {}.", rough(seconds as u64))
            }
            _ => String::new(), // It is short, or not set.
        }
    }

    /// The values that a control has, and what they are called.
    fn choices(&self, name: &str) -> Vec<(String, String)> {
        if name != "plugin" {
            return words(name).iter().map(|(word, label)| (word.to_string(), label.to_string())).collect();
        }
        let now = self.value(name);
        let unknown =
            (!self.plugins.contains(&now)).then(|| (now.clone(), format!("{now} (not known here)")));
        let known = self.plugins.iter().map(|name| (name.clone(), name.clone()));
        unknown.into_iter().chain(known).collect()
    }

    /// What takes a change back: what there is now under these names, as a query string.
    fn undo(&self, names: &str) -> String {
        let pairs = names.split(' ').map(|name| format!("{name}={}", encoded(&self.value(name))));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// The names of its rates: those of its groups where it goes by groups.
    fn rates(&self) -> &'static str {
        if self.queue.policy() == Policy::Fair {
            "rate.n rate.per rate.burst group_rate.n group_rate.per group_rate.burst"
        } else {
            "rate.n rate.per rate.burst"
        }
    }
}

fn words(name: &str) -> &'static [(&'static str, &'static str)] {
    WORDS.into_iter().find(|(known, _)| *known == name).map_or(&[], |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};

    use super::*;

    fn queue(fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    fn values<const N: usize>(fields: Document, names: [&str; N]) -> [String; N] {
        names.map(|name| Settings { queue: &queue(fields.clone()), plugins: &[] }.value(name))
    }

    fn html(fields: Document) -> String {
        Settings { queue: &queue(fields), plugins: &[] }.render().unwrap()
    }

    #[test]
    fn labels_and_names_are_text_that_can_be_saved_again() {
        let stored = doc! { "nodes": { "labels": { "zone": "a", "gpu": "yes" }, "names": ["n2", "n1"] } };
        assert_eq!(values(stored, ["nodes.labels", "nodes.names"]), ["gpu=yes, zone=a", "n1, n2"]);
    }

    #[test]
    fn rates_are_shown_as_they_are_stored() {
        let names = ["rate.n", "rate.per", "rate.burst"];
        assert_eq!(values(doc! { "rate": { "n": 10, "per": 60 } }, names), ["10", "60", ""]);
        assert_eq!(values(doc! { "rate": 5 }, names), [""; 3]);
    }

    #[test]
    fn groups_have_a_rate_where_the_queue_goes_by_them() {
        let fair = html(doc! { "policy": "fair", "group_rate": { "n": 1, "per": 5, "burst": 2 } });
        for part in [
            "name=\"group_rate.n\" value=\"1\"",
            "name=\"group_rate.per\" value=\"5\"",
            "burst\" value=\"2\"",
        ] {
            assert!(fair.contains(part), "{part} is not in {fair}");
        }
        assert!(!html(doc! { "policy": "fifo" }).contains("group_rate"));
    }

    #[test]
    fn what_is_stored_can_be_sent_again() {
        let stored = doc! {
            "policy": "fair", "scheme": [2, 1], "share": "use", "weights": { "acme/ann": 3 }, "group_threads": 4,
            "half_life": 60,
        };
        assert_eq!(values(doc! { "index": ["params.a", "params.b.c"] }, ["index"]), ["params.a, params.b.c"]);
        let names = ["policy", "scheme", "share", "weights", "group_threads", "half_life"];
        assert_eq!(values(stored, names), ["fair", "[2,1]", "use", "{\"acme/ann\":3}", "4", "60"]);
        assert_eq!(values(doc! {}, names), [""; 6]);
    }

    #[test]
    fn a_change_of_each_control_can_be_taken_back() {
        for fields in [doc! {}, doc! { "policy": "fair" }] {
            let html = html(fields);
            let forms: Vec<&str> = html.split("<form").skip(1).collect();
            assert_eq!(forms.len(), 9);
            for form in forms {
                let within = |text: &str, end: char| text.split(end).next().unwrap_or_default().to_owned();
                let undo = within(form.split("data-undo=\"").nth(1).unwrap(), '"').replace("&#38;", "&");
                let undone: Vec<String> = undo.split('&').map(|pair| within(pair, '=')).collect();
                let controls = form.split("name=\"").skip(1).map(|rest| within(rest, '"'));
                let controls: Vec<String> = controls.filter(|name| !name.starts_with('.')).collect();
                assert_eq!(undone, controls);
            }
        }
    }
}
