//! The settings of a queue: the template has what each means. They are one form, which sends along what it has begun with, so that what
//! somebody else has changed meanwhile is not overwritten.

use std::time::Duration;

use askama::Template;
use askama::filters::{HtmlSafe, HtmlSafeOutput};
use bson::Bson;
use disbatch_core::model::{NodeSelector, Policy, Queue, Rules, number};
use disbatch_core::rate::Rate;
use disbatch_core::tags::{INDEX, stored};
use serde_json::{Map, Value};

use crate::access::viewer;
use crate::api::update_queue;
use crate::json;
use crate::ui::parts::{limit_span, rough};
use crate::ui::plain;
use crate::ui::queue_state::rate_words;

const CONTROLS: [(&str, &[&str]); 11] = [
    ("named", &["name", "title", "sort"]),
    ("runs", &["plugin", "version"]),
    ("fairness", &["policy", "scheme", "share", "weights", "group_threads", "half_life"]),
    ("rates", &["rate.n", "rate.per", "rate.burst", "group_rate.n", "group_rate.per", "group_rate.burst"]),
    ("nodes", &["nodes.labels", "nodes.names"]),
    ("index", &["index"]),
    (
        "attempts",
        &[
            "max_attempts",
            "timeout",
            "grace",
            "backoff.base",
            "backoff.factor",
            "backoff.max",
            "backoff.jitter",
        ],
    ),
    ("lost", &["on_orphan", "on_lost_lease", "unleased_limit"]),
    ("record", &["record.share", "record.keep"]),
    ("shadow", &["shadow.queue", "shadow.share"]),
    ("ended", &["retention.archive_after", "retention.delete_after"]),
];

const WORDS: [(&str, &str, &str); 17] = [
    ("sort", "", "not set: the oldest first, as far as the index has it"),
    ("sort", "fifo", "fifo: the oldest first"),
    ("sort", "lifo", "lifo: the newest first"),
    ("policy", "", "not set: by the order above"),
    ("policy", "fifo", "fifo: the oldest first"),
    ("policy", "lifo", "lifo: the newest first"),
    ("policy", "priority", "priority: the highest priority first"),
    ("policy", "fair", "fair: groups share it"),
    ("share", "", "not set: turns"),
    ("share", "turns", "turns: as many tasks for each group"),
    ("share", "use", "use: as much time for each group"),
    ("on_orphan", "", "not set: fail"),
    ("on_orphan", "fail", "fail: it is lost"),
    ("on_orphan", "requeue", "requeue: it is tried again"),
    ("on_lost_lease", "", "not set: keep on, or stop if orphans are requeued"),
    ("on_lost_lease", "keep", "keep: the plugin goes on"),
    ("on_lost_lease", "stop", "stop: the plugin is ended"),
];

#[derive(Template)]
#[template(path = "queue/settings.html")]
pub(super) struct Settings<'a> {
    pub queue: &'a Queue,
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
                let is_choice = |value: &String| {
                    words(name).next().is_none() || words(name).any(|(word, _)| word == value)
                };
                Some(plain(self.stored(name))).filter(is_choice).unwrap_or_default()
            }
        }
    }

    /// Who may use the control of this name, as its attributes.
    fn limits(&self, name: &str) -> HtmlSafeOutput<String> {
        match update_queue::of_all_queues(name) {
            Some(_) => viewer::for_operators_of_all(),
            None => viewer::for_operators_of(self.queue),
        }
    }

    /// What is stored of `timeout` or `rate.n`, for instance.
    fn stored(&self, name: &str) -> Option<&Bson> {
        match name.split_once('.') {
            Some((whole, part)) => self.queue.rest.get_document(whole).ok()?.get(part),
            None => self.queue.rest.get(name),
        }
    }

    /// A length of time in larger units, if it is long.
    fn now_about(&self, name: &str) -> String {
        let seconds = self.stored(name).and_then(number).filter(|seconds| (120.0..1e12).contains(seconds));
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        time.map(|time| format!(" Now about {}.", rough(time.as_secs()))).unwrap_or_default()
    }

    fn choices(&self, name: &str) -> Vec<(String, String)> {
        if name != "plugin" {
            return words(name).map(|(word, label)| (word.to_owned(), label.to_owned())).collect();
        }
        let now = self.value(name);
        let unknown =
            (!self.plugins.contains(&now)).then(|| (now.clone(), format!("{now} (not known here)")));
        let known = self.plugins.iter().map(|name| (name.clone(), name.clone()));
        unknown.into_iter().chain(known).collect()
    }

    fn was(&self) -> String {
        let names = CONTROLS.iter().flat_map(|(group, _)| self.names(group));
        let was: Map<String, Value> = names.map(|name| (name.to_owned(), self.value(name).into())).collect();
        json::compact(&Value::Object(was))
    }

    /// The controls of a group: those of its rates by group only where it goes by groups.
    fn names(&self, group: &str) -> Vec<&'static str> {
        let named = CONTROLS.into_iter().find(|(known, _)| *known == group);
        let names = named.into_iter().flat_map(|(_, names)| names.iter().copied());
        let is_fair = self.queue.policy() == Policy::Fair;
        names.filter(|name| is_fair || !name.starts_with("group_rate.")).collect()
    }

    /// What is set of a group, in a few words; nothing if nothing is.
    fn summary(&self, group: &str) -> String {
        let words = match group {
            "attempts" => self.attempts(),
            "rates" => self.rates(),
            _ => self.names(group).into_iter().filter_map(|name| self.phrase(name)).collect(),
        };
        words.join(", ")
    }

    fn phrase(&self, name: &'static str) -> Option<String> {
        let value = Some(self.value(name)).filter(|value| !value.is_empty())?;
        let length = || self.stored(name).and_then(number).map(limit_span);
        Some(match name {
            "name" | "plugin" | "policy" | "nodes.labels" | "index" => value,
            "title" => format!("tasks called {value}"),
            "version" => format!("version {value}"),
            "nodes.names" => format!("on {value}"),
            "sort" => words(name).find(|(word, _)| *word == value)?.1.to_owned(),
            "scheme" => format!("priority ratio {value}"),
            "share" => format!("by {value}"),
            "weights" => "with weights".to_owned(),
            "group_threads" => format!("{value} tasks of a group"),
            "half_life" => format!("half-life {}", length()?),
            "on_orphan" => format!("if a runner dies: {value}"),
            "on_lost_lease" => format!("if it loses the database: {value}"),
            "unleased_limit" => format!("given up without a lease after {}", length()?),
            "shadow.queue" => format!("in {value}"),
            "record.share" | "shadow.share" => format!("a share of {value}"),
            "record.keep" => format!("kept for {value} d"),
            "retention.archive_after" => format!("archived after {}", length()?),
            "retention.delete_after" => format!("deleted after {}", length()?),
            _ => return None, // Those of a sentence.
        })
    }

    /// `3 attempts, 60 s · 120 s apart, 1 h each`.
    fn attempts(&self) -> Vec<String> {
        const SHOWN: u64 = 4;
        let seconds = |name: &str| self.stored(name).and_then(number);
        let mut words = Vec::new();
        let attempts = seconds("max_attempts");
        words.extend(
            attempts.map(|attempts| format!("{attempts} attempt{}", if attempts > 1.0 { "s" } else { "" })),
        );
        let is_set = self.stored("backoff").is_some();
        let backoff = Rules::of_queue(self.queue).backoff;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
        let pauses = attempts.map_or(0, |attempts| attempts as u64).saturating_sub(1);
        if pauses > 0 && is_set {
            let pause = |failures: u64| {
                let power = i32::try_from(failures).unwrap_or(i32::MAX);
                limit_span((backoff.base * backoff.factor.powi(power)).min(backoff.max))
            };
            let more = if pauses > SHOWN { " · …" } else { "" };
            let each: Vec<String> = (1..=pauses.min(SHOWN)).map(pause).collect();
            words.push(format!("{}{more} apart", each.join(" · ")));
        }
        words.extend(seconds("timeout").map(|timeout| format!("{} each", limit_span(timeout))));
        words.extend(seconds("grace").map(|grace| format!("{} from SIGTERM to SIGKILL", limit_span(grace))));
        words
    }

    fn rates(&self) -> Vec<String> {
        let words = |rate: Rate| match rate.burst {
            ..=1 => rate_words(&rate),
            burst => format!("{}, {burst} at once", rate_words(&rate)),
        };
        let of_groups = Rate::of_groups(self.queue).map(words).map(|words| format!("{words} for each group"));
        Rate::of_queue(self.queue).map(words).into_iter().chain(of_groups).collect()
    }
}

/// The words that a setting can be, with what they mean; none if it is something else.
fn words(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    WORDS.into_iter().filter(move |(known, ..)| *known == name).map(|(_, word, label)| (word, label))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bson::oid::ObjectId;
    use bson::{Document, doc};
    use disbatch_core::accounts::{Grant, Rights, Role, Scope};

    use super::*;
    use crate::access::Who;
    use crate::access::viewer::Viewer;

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
    fn what_the_form_begins_with_is_sent_along() {
        for fields in [doc! { "timeout": 90.5, "sort": "lifo" }, doc! { "policy": "fair" }] {
            let queue = queue(fields);
            let settings = Settings { queue: &queue, plugins: &[] };
            let was: Map<String, Value> = serde_json::from_str(&settings.was()).unwrap();
            let html = settings.render().unwrap();
            let within = |text: &str| text.split('"').next().unwrap_or_default().to_owned();
            let controls = html.split("name=\"").skip(1).map(within);
            let controls: BTreeSet<String> = controls.filter(|name| !name.starts_with('.')).collect();
            assert_eq!(controls, was.keys().cloned().collect());
            assert!(html.contains("name=\".was\" value=\"{&#34;"), "{html}");
        }
    }

    #[tokio::test]
    async fn what_would_be_refused_of_an_operator_of_the_queue_is_off() {
        let (queue, other) = (queue(doc! {}), queue(doc! {}));
        let mut who = Who::anybody("10.0.0.1".into());
        let grant = Grant { scope: Scope::Queue(queue.id), role: Role::Operator };
        (who.name, who.rights) = (Some("alice".into()), Rights::new(Some(Role::Viewer), vec![grant]));
        let off = async |queue: &Queue, name: &str| {
            let settings = Settings { queue, plugins: &[] };
            let html = Viewer::of(&who).look(async { settings.render().unwrap() }).await;
            let control = html.split(&format!(" name=\"{name}\"")).nth(1).unwrap();
            control.split('>').next().unwrap().ends_with(" disabled")
        };
        for name in ["plugin", "version", "nodes.labels", "nodes.names"] {
            assert!(off(&queue, name).await, "{name}");
        }
        for name in ["name", "title", "sort", "timeout"] {
            assert_eq!((off(&queue, name).await, off(&other, name).await), (false, true), "{name}");
        }
    }

    #[test]
    fn what_is_set_is_told_in_words() {
        let told =
            |fields: Document, group: &str| Settings { queue: &queue(fields), plugins: &[] }.summary(group);
        let tried = doc! {
            "max_attempts": 4, "timeout": 3600, "backoff": { "base": 30, "factor": 2, "max": 100 },
        };
        assert_eq!(told(tried, "attempts"), "4 attempts, 60 s · 100 s · 100 s apart, 1 h each");
        assert_eq!(told(doc! { "max_attempts": 1 }, "attempts"), "1 attempt");
        assert_eq!(
            told(doc! { "rate": { "n": 60, "per": 3600, "burst": 5 } }, "rates"),
            "60 an hour, 5 at once"
        );
        let kept = doc! { "retention": { "archive_after": 604_800.0, "delete_after": 5_400 } };
        assert_eq!(told(kept, "ended"), "archived after 7 d, deleted after 1 h 30 min");
        assert_eq!(told(doc! { "on_orphan": "requeue" }, "lost"), "if a runner dies: requeue");
        for (group, _) in CONTROLS.into_iter().skip(1) {
            assert_eq!(told(doc! {}, group), "", "{group}");
        }
    }
}
