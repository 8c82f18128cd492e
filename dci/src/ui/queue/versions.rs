//! The versions of a queue's plugin: which nodes have which, which of them runs its tasks, and how the one does that is tried; and
//! `GET /queues/:queue/shadow` for people, which compares tasks with the copies of them that ran in another queue.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::web::Data;
use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_compare::diff::{self, Row};
use disbatch_compare::{Comparison, Text};
use disbatch_core::canary::{LEAST, Side, WORSE_BELOW, percent};
use disbatch_core::explain::Reader;
use disbatch_core::model::{CANARY_RETURNED, Canary, Queue, Status, Version, number};
use disbatch_core::plugin::VERSIONS;
use disbatch_core::series::Sides;
use serde_json::json;

use crate::access::{NamedQueue, Who};
use crate::api::shadows::{self, Comparisons};
use crate::params::Lenient;
use crate::shadows::Verdict;
use crate::state::State;
use crate::ui::nodes::{NodeState, Now};
use crate::ui::parts::When;
use crate::ui::{Rendered, integer, plain};
use crate::{json, ui};

/// With so much of a queue's tasks a version can be tried by a button.
const SHARES: [f64; 3] = [0.05, 0.25, 0.5];

const NAMED: usize = 5;

/// The panel; nothing in it where there is nothing to choose.
#[derive(Debug, Template)]
#[template(path = "queue/versions.html")]
pub(super) struct Versions {
    queue: String,
    name: String,
    pinned: Option<Version>,
    /// The versions that can be chosen, with the nodes that are alive and have them.
    known: BTreeMap<Version, BTreeSet<String>>,
    sees_nodes: bool,
    canary: Option<Tried>,
    returned: Option<Returned>,
}

impl HtmlSafe for Versions {}

#[derive(Debug)]
struct Tried {
    canary: Canary,
    sides: Sides,
}

#[derive(Debug)]
struct Returned {
    version: String,
    at: When,
    canary: Side,
    others: Side,
    p: f64,
}

impl Versions {
    /// Those of a queue, of which `reader` may know that nodes have them, and maybe which.
    pub fn of(queue: &Queue, (nodes, now): (&[Document], &Now), (reader, sides): (Reader, Sides)) -> Self {
        let pinned = queue.pinned_version().ok().flatten();
        let canary = Canary::of(queue);
        let plugin = plain(queue.rest.get("plugin"));
        let mut known: BTreeMap<Version, BTreeSet<String>> = BTreeMap::new();
        for node in nodes.iter().filter(|node| NodeState::of(node, now) == NodeState::Alive) {
            for version in versions_of(node, &plugin) {
                known.entry(version).or_default().insert(plain(node.get("node")));
            }
        }
        for version in pinned.iter().chain(canary.iter().map(|canary| &canary.version)) {
            known.entry(version.clone()).or_default();
        }
        Self {
            queue: queue.id.to_string(),
            name: crate::ui::names::label(queue),
            known,
            sees_nodes: reader == Reader::OfAll,
            canary: canary.map(|canary| Tried { canary, sides }),
            returned: Returned::of(queue),
            pinned,
        }
    }

    fn is_shown(&self) -> bool {
        self.pinned.is_some() || self.canary.is_some() || self.returned.is_some() || self.known.len() > 1
    }

    /// What brings back what is there now, as forms are sent.
    fn undo(&self) -> String {
        let encoded = crate::ui::names::encoded;
        let version = self.pinned.as_ref().map(Version::as_str).unwrap_or_default();
        let canary = match &self.canary {
            None => "canary=".to_owned(),
            Some(Tried { canary, .. }) => {
                format!("canary.version={}&canary.share={}", encoded(canary.version.as_str()), canary.share)
            }
        };
        format!("version={}&{canary}", encoded(version))
    }

    /// What the reader has seen, so that nobody overwrites what somebody else has changed meanwhile.
    fn was(&self) -> String {
        let canary = |Tried { canary, .. }: &Tried| json!({ "version": canary.version.as_str(), "share": canary.share });
        let pinned = self.pinned.as_ref().map(Version::as_str);
        json::compact(&json!({ "version": pinned, "canary": self.canary.as_ref().map(canary) }))
    }

    fn is_pinned(&self, version: &Version) -> bool {
        self.pinned.as_ref() == Some(version)
    }

    fn is_tried(&self, version: &Version) -> bool {
        self.canary.as_ref().is_some_and(|tried| tried.canary.version == *version)
    }

    fn has(&self, version: &Version, share: &f64) -> bool {
        let is_same = |tried: &Tried| (tried.canary.share - share).abs() < 1e-9;
        self.is_tried(version) && self.canary.as_ref().is_some_and(is_same)
    }

    /// What runs all tasks but those of the canary.
    fn baseline(&self) -> String {
        match &self.pinned {
            Some(version) => format!("Version {version}"),
            None => "What each node finds first".to_owned(),
        }
    }

    fn trial(&self, version: &Version, share: &f64) -> String {
        let share = percent(*share);
        if self.is_tried(version) {
            format!("Try {share} instead")
        } else {
            format!("Try {version} on {share}")
        }
    }

    fn rolled_out(&self, version: impl std::fmt::Display) -> String {
        format!("All tasks of {} are run by version {version}.", self.name)
    }
}

impl Returned {
    fn of(queue: &Queue) -> Option<Self> {
        let returned = queue.rest.get(CANARY_RETURNED).and_then(Bson::as_document)?;
        let count = |name: &str| {
            integer(returned, name).and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
        };
        let side = |failed: &str, of: &str| Side { failed: count(failed), ended: count(of) };
        Some(Self {
            version: returned.get_str("version").ok()?.to_owned(),
            at: When::of(returned.get("at")),
            canary: side("failed", "of"),
            others: side("others_failed", "others_of"),
            p: returned.get("p").and_then(number).unwrap_or_default(),
        })
    }
}

fn versions_of(node: &Document, plugin: &str) -> impl Iterator<Item = Version> {
    let listed = node.get_array(VERSIONS).map(Vec::as_slice).unwrap_or_default();
    let of_plugin = listed.iter().filter_map(Bson::as_str).filter_map(|text| text.split_once('@'));
    of_plugin.filter(move |(name, _)| *name == plugin).filter_map(|(_, version)| version.parse().ok())
}

#[derive(Template)]
#[template(path = "shadow.html")]
struct ShadowPage<'a> {
    found: &'a Comparisons,
    counts: Vec<(&'static str, usize)>,
}

pub async fn shadow(state: Data<State>, who: Who, named: NamedQueue, Lenient(params): Lenient) -> Rendered {
    render_shadow(&shadows::find(&state, &who, &named, &params).await?)
}

fn render_shadow(found: &Comparisons) -> Rendered {
    let mut counts: Vec<(&'static str, usize)> =
        Verdict::ALL.map(|verdict| (verdict.as_str(), found.count(verdict))).to_vec();
    let [task_failed, shadow_failed] = found.failed();
    counts.extend([("only the task failed", task_failed), ("only the shadow failed", shadow_failed)]);
    ui::render(&ShadowPage { found, counts })
}

/// What of a task is other than of its shadow, but for texts: both.
fn facts(comparison: &Comparison) -> Vec<(&'static str, String, String)> {
    let mut facts = Vec::new();
    if !comparison.status.same {
        let word = |code: i64| format!("{code} {}", Status::from_code(code).word());
        facts.push(("status", word(comparison.status.was), word(comparison.status.is)));
    }
    if !comparison.exit.same {
        facts.push(("exit", comparison.exit.was.to_string(), comparison.exit.is.to_string()));
    }
    facts
}

fn texts(comparison: &Comparison) -> Vec<(&Text, Vec<Row>)> {
    let differ = comparison.texts.iter().filter(|text| !text.same && !text.difference.is_empty());
    differ.map(|text| (text, diff::rows(&text.difference))).collect()
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use disbatch_core::model::{QueueId, Shadow};

    use super::*;
    use crate::shadows::Compared;

    const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);

    fn html(fields: Document, sides: Sides) -> String {
        let mut queue = doc! { "_id": ObjectId::from_bytes([1; 12]), "name": "<mail>", "plugin": "Mail" };
        queue.extend(fields);
        let queue: Queue = bson::deserialize_from_document(queue).unwrap();
        let node = |name: &str, versions: &[&str]| {
            doc! { "_id": ObjectId::new(), "node": name, "instance": "i", "seen": NOW, "lease_ms": 30_000, "plugin_versions": versions.to_vec() }
        };
        let nodes = [node("<n1>", &["Mail@1", "Mail@2", "Other@7"]), node("n2", &["Mail@1"])];
        let now = Now { server: NOW, host: NOW };
        Versions::of(&queue, (&nodes, &now), (Reader::OfAll, sides)).render().unwrap()
    }

    #[test]
    fn what_can_be_chosen_is_shown_with_the_nodes_that_have_it() {
        let free = html(doc! {}, Sides::default());
        for part in ["None is pinned", "&#60;n1&#62;, n2", "Run all with 1", "Try 2 on 5 %", "Try 1 on 50 %"]
        {
            assert!(free.contains(part), "{part} is not in {free}");
        }
        assert!(!free.contains("Other") && !free.contains("<mail>") && !free.contains("<n1>"), "{free}");
        let pinned = html(doc! { "version": "3" }, Sides::default());
        assert!(pinned.contains("no node has it") && pinned.contains("Pin none"), "{pinned}");
    }

    #[test]
    fn a_canary_is_shown_with_both_rates_and_can_be_promoted_or_taken_back() {
        let canary = doc! { "version": "2", "share": 0.05, "began": NOW };
        let sides =
            |ended| Sides { canary: Side { ended, failed: 1 }, others: Side { ended: 400, failed: 8 } };
        let fields = doc! { "version": "1", "canary": canary };
        let tried = html(fields.clone(), sides(4));
        for part in [
            "Version 2, 5 % of the tasks",
            "Make 2 the version of all",
            "Roll back",
            "16 more of its attempts",
            "value=\"0.02\"",
            " 25 %",
            "Try 25 % instead",
            "name=\".was\" value=\"{&#34;canary&#34;:{&#34;share&#34;:0.05,&#34;version&#34;:&#34;2&#34;},&#34;version&#34;:&#34;1&#34;}\"",
        ] {
            assert!(tried.contains(part), "{part} is not in {tried}");
        }
        assert!(!tried.contains("Try 5 % instead"), "it is tried so");
        assert!(html(fields, sides(40)).contains("with a probability of 0."));
        let returned = doc! {
            "version": "2", "at": NOW, "failed": 9_i64, "of": 20_i64, "others_failed": 0_i64, "others_of": 20_i64, "p": 0.000_614_25,
        };
        let back = html(doc! { "canary_returned": returned }, Sides::default());
        assert!(back.contains("9 of its 20 attempts failed") && back.contains("p = 6.1e-4"), "{back}");
    }

    #[test]
    fn pairs_are_links_and_what_differs_stands_side_by_side() {
        let comparison = json!({
            "status": { "was": 1, "is": 2, "same": false }, "exit": { "was": {}, "is": {}, "same": true },
            "texts": [{
                "name": "stdout", "same": false, "was_bytes": 4, "is_bytes": 4,
                "difference": "--- a\n+++ b\n@@ -1,2 +1,2 @@\n <x>\n-is 1\n+is <2>\n",
            }],
            "duration": { "was": 0.1, "is": 2.0 }, "memory": { "was": null, "is": null }, "changed_files": null, "note": null,
        });
        let ids = [1, 2].map(|number| ObjectId::from_bytes([number; 12]));
        let queue = || Queue::without_document(QueueId(ids[0]));
        let compared = Compared {
            task: ids[0],
            shadow: ids[1],
            comparison: serde_json::from_value(comparison).unwrap(),
        };
        let shadow = Some((Shadow { queue: "next".to_owned(), share: 0.25 }, queue()));
        let html = render_shadow(&Comparisons { queue: queue(), shadow, all: vec![compared] }).unwrap().1;
        for part in [
            "25 %",
            "1 different",
            "/tasks/010101010101010101010101",
            "/tasks/020202020202020202020202",
            "+1900 %",
            "1 succeeded",
            "2 failed",
            "<mark>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<x>") && !html.contains("<2>"), "{html}");
        let none = render_shadow(&Comparisons { queue: queue(), shadow: None, all: vec![] }).unwrap().1;
        assert!(none.contains("This queue has no shadow."), "{none}");
    }
}
