//! Nodes, what they can run, and schedules.

use std::collections::BTreeMap;

use bson::{Bson, DateTime, Document};
use disbatch_core::model::{Node, Queue, whole_number};
use disbatch_core::node::{HOLDERS, Peer};
use disbatch_core::plugin::Report;

use super::{Check, Findings, Level};
use crate::json::{self, Dates};
use crate::ui::nodes::{NodeState, Now};
use crate::ui::plain;
use crate::ui::queue_state::{Lacking, lacking};

/// By how much clocks may differ: times in lists, of schedules and of logs are those of several hosts. Leases and limits go by the
/// clock of the database alone.
const SKEW: i64 = 2_000;
const GREAT_SKEW: i64 = 60_000;

pub struct Fleet<'a> {
    nodes: Vec<(NodeState, &'a Document)>,
    now: Now,
}

impl<'a> Fleet<'a> {
    pub fn new(nodes: &'a [Document], now: Now) -> Self {
        Self { nodes: nodes.iter().map(|node| (NodeState::of(node, &now), node)).collect(), now }
    }

    fn up(&self) -> impl Iterator<Item = &'a Document> {
        self.nodes.iter().filter(|(state, _)| state.is_up()).map(|(_, node)| *node)
    }

    pub fn clocks(&self) -> Findings {
        let mut check = Check::new("clocks");
        let ahead = |clock: DateTime, server: DateTime| {
            clock.timestamp_millis().saturating_sub(server.timestamp_millis())
        };
        let mut compare = |name: &str, ms: i64| {
            if ms.abs() < SKEW {
                return;
            }
            let level = if ms.abs() >= GREAT_SKEW { Level::Error } else { Level::Warning };
            let word = if ms > 0 { "ahead of" } else { "behind" };
            #[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
            let seconds = ms.abs() as f64 / 1000.0;
            let text = format!("its clock is {seconds:.1} s {word} that of the database");
            check.add(level, Some(name), text, "Have NTP set the clocks of all hosts.");
        };
        compare("this server", ahead(self.now.host, self.now.server));
        let mut compared = 0;
        // Both are written by one operation, one by the clock of the node, one by that of the database.
        for node in self.up() {
            if let (Ok(at), Ok(seen)) = (node.get_datetime("timestamp"), node.get_datetime("seen")) {
                compared += 1;
                compare(&name(node), ahead(*at, *seen));
            }
        }
        check.end(format!(
            "that of this server agrees with that of the database, and so do those of nodes: {compared}"
        ))
    }

    pub fn nodes(&self) -> Findings {
        let mut check = Check::new("nodes");
        for (state, node) in &self.nodes {
            let subject = name(node);
            match state {
                NodeState::Dead | NodeState::Gone => {
                    let mut text =
                        "its DEN was not heard of for longer than its lease, and has not said that it ends"
                            .to_owned();
                    if !node.contains_key(HOLDERS) {
                        text.push_str(
                            "; it did not hold slots: all nodes count tasks for limits until it is deleted",
                        );
                    }
                    let advice =
                        "Start it, or delete the node if it is not to come back: disbatch nodes --help.";
                    check.add(Level::Warning, Some(&subject), text, advice);
                }
                NodeState::Alive | NodeState::Draining => {
                    if let Ok(rival) = node.get_str("rival") {
                        let text = format!("another DEN uses the same name ({rival})");
                        let advice = "Give one of them another name: node in its configuration.";
                        check.add(Level::Error, Some(&subject), text, advice);
                    }
                    let aside = node.get("aside").and_then(whole_number);
                    if let Some(tasks) = aside.filter(|tasks| *tasks > 0) {
                        let text = format!("it leaves {tasks} tasks alone, with which nothing can be done");
                        let advice = "disbatch explain tells of each what is wrong with it.";
                        check.add(Level::Warning, Some(&subject), text, advice);
                    }
                }
                NodeState::Stopped => {}
            }
        }
        let alive = self.nodes.iter().filter(|(state, _)| *state == NodeState::Alive).count();
        if alive == 0 {
            let text = "no node is alive that takes new tasks";
            check.add(Level::Error, None, text, "Start a den, or end the drain of one.");
        }
        check.end(format!("nodes that take new tasks: {alive}"))
    }

    pub fn versions(&self) -> Findings {
        let mut check = Check::new("versions");
        let mut by_version: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for node in self.up() {
            by_version.entry(node.get_str("version").unwrap_or("unknown")).or_default().push(name(node));
        }
        let own = env!("CARGO_PKG_VERSION");
        for (version, nodes) in by_version.iter().filter(|(version, _)| **version != own) {
            let text = format!("release {version} on {}, and this server is {own}", nodes.join(", "));
            let advice = "They work together while an installation is upgraded; upgrade the rest.";
            check.add(Level::Warning, None, text, advice);
        }
        check.end(format!("all nodes have release {own}, as this server"))
    }

    pub fn plugins(&self) -> Findings {
        let mut check = Check::new("plugins");
        for node in self.up() {
            for report in Report::of_node(node) {
                let of = report.plugin.map(|plugin| format!("the plugin {plugin}: ")).unwrap_or_default();
                let text = format!("it cannot run {of}{}", report.why);
                let advice = "Mend it there; the node looks again by itself.";
                check.add(Level::Warning, Some(&name(node)), text, advice);
            }
        }
        check.end("nodes can run all plugins that they have")
    }

    /// Whether some node serves each queue that may run tasks, and has its plugin.
    pub fn queues(&self, queues: &[Queue]) -> Findings {
        let mut check = Check::new("queues");
        let alive = || {
            self.nodes
                .iter()
                .filter(|(state, _)| *state == NodeState::Alive)
                .map(|(state, node)| (*state, *node))
        };
        let peers: Vec<Option<Peer>> =
            alive().map(|(_, node)| typed(node).as_ref().and_then(Peer::of)).collect();
        for queue in queues.iter().filter(|queue| queue.claim_limit() > 0) {
            let subject = queue.display_name();
            match Lacking::of(queue, alive()) {
                Some(Lacking::Plugin) => check.add(Level::Error, Some(&subject), "it has no plugin", "disbatch update-queue NAME plugin PLUGIN"),
                Some(Lacking::UsablePlugin(why)) => {
                    check.add(Level::Error, Some(&subject), format!("its plugin can be none: {why}"), "disbatch update-queue NAME plugin PLUGIN");
                }
                Some(Lacking::NodeWith(plugin)) => {
                    let text = format!("no node has {}", lacking(&plugin));
                    check.add(Level::Error, Some(&subject), text, "Install the plugin on a node, or define it: docs/plugins.md.");
                }
                // That is said of nodes, once.
                Some(Lacking::Node) => {}
                // Which queues programs of Perl serve is not known.
                None if peers.iter().any(|peer| peer.as_ref().is_none_or(|peer| peer.could_run(queue))) => {}
                None => check.add(
                    Level::Error,
                    Some(&subject),
                    "no node that has its plugin serves it: it is for other nodes, or left out by their configuration",
                    "See its node selector, and activequeues and ignorequeues of the nodes.",
                ),
            }
        }
        check.end("each queue that may run tasks has a node that can")
    }
}

pub fn schedules(late: &[(String, DateTime)]) -> Findings {
    let mut check = Check::new("schedules");
    for (name, due) in late {
        let due = json::from_bson(&Bson::from(*due), Dates::Text);
        let text = format!("it should have fired at {} UTC", due.as_str().unwrap_or_default());
        let advice =
            "A DEN that fires schedules must be alive, and its queue be there: see the log of the DENs.";
        check.add(Level::Error, Some(name), text, advice);
    }
    check.end("none is late")
}

fn typed(node: &Document) -> Option<Node> {
    bson::deserialize_from_document(node.clone()).ok()
}

fn name(node: &Document) -> String {
    plain(node.get("node"))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    const NOW: i64 = 1_795_163_067_344;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(NOW + seconds * 1_000)
    }

    fn node(name: &str, fields: Document) -> Document {
        let mut node = doc! {
            "_id": bson::oid::ObjectId::new(), "node": name, "instance": "i", "state": "alive", "seen": at(0), "timestamp": at(0),
            "lease_ms": 30_000_i64, "version": env!("CARGO_PKG_VERSION"), "plugins": ["P"],
        };
        node.extend(fields);
        node
    }

    fn now() -> Now {
        Now { server: at(1), host: at(1) }
    }

    fn found(findings: &Findings) -> Vec<(&str, &str)> {
        findings.iter().map(|(_, f)| (&f.level[..], f.subject.as_deref().unwrap_or_default())).collect()
    }

    #[test]
    fn all_is_well() {
        let nodes = [node("n1", doc! {}), node("n2", doc! { "state": "stopped", "seen": null })];
        let fleet = Fleet::new(&nodes, now());
        let queue: Queue = bson::deserialize_from_document(
            doc! { "_id": bson::oid::ObjectId::new(), "name": "q", "plugin": "P", "threads": 1 },
        )
        .unwrap();
        for findings in [
            fleet.clocks(),
            fleet.nodes(),
            fleet.versions(),
            fleet.plugins(),
            fleet.queues(&[queue]),
            schedules(&[]),
        ] {
            assert_eq!(found(&findings), [("ok", "")], "{findings:?}");
        }
    }

    #[test]
    fn clocks_are_compared_with_that_of_the_database() {
        let nodes = [
            node("n1", doc! { "timestamp": at(4) }),
            node("n2", doc! { "timestamp": at(-70) }),
            node("n3", doc! { "timestamp": at(900), "seen": at(-900) }),
        ];
        let findings = Fleet::new(&nodes, Now { server: at(1), host: at(4) }).clocks();
        assert_eq!(
            found(&findings),
            [("error", "n2"), ("warning", "this server"), ("warning", "n1")],
            "n3 is dead"
        );
        assert_eq!(findings[0].1.text, "its clock is 70.0 s behind that of the database");
    }

    #[test]
    fn what_is_wrong_with_nodes_is_told_of_each() {
        let nodes = [
            node("n1", doc! { "seen": at(-900) }),
            node("n2", doc! { "rival": "x", "version": "0.0.1", "draining": true }),
            node(
                "n3",
                doc! { "aside": 3, "draining": true, "plugin_problems": [{ "plugin": "Q", "why": "no such program" }] },
            ),
        ];
        let fleet = Fleet::new(&nodes, now());
        assert_eq!(
            found(&fleet.nodes()),
            [("error", "n2"), ("error", ""), ("warning", "n1"), ("warning", "n3")]
        );
        assert_eq!(found(&fleet.versions()), [("warning", "")]);
        let plugins = fleet.plugins();
        assert_eq!(found(&plugins), [("warning", "n3")]);
        assert!(plugins[0].1.text.contains("Q: no such program"), "{plugins:?}");
        assert_eq!(found(&schedules(&[("s".to_owned(), at(-90))])), [("error", "s")]);
    }

    #[test]
    fn a_dead_node_that_has_others_count_is_told_apart() {
        let has_others_count = |node: Document| {
            let findings = Fleet::new(&[node], now()).nodes();
            findings.iter().any(|(_, finding)| finding.text.contains("all nodes count tasks"))
        };
        let held = node("n1", doc! { "seen": at(-900), HOLDERS: { "h": at(-900) } });
        assert!(!has_others_count(held));
        assert!(has_others_count(node("n1", doc! { "seen": at(-900) })), "an earlier release");
        let perl = doc! { "_id": bson::oid::ObjectId::new(), "node": "n1", "timestamp": at(-900) };
        assert!(has_others_count(perl), "Perl's");
    }

    #[test]
    fn queues_that_nobody_can_serve_are_named() {
        let queue = |name: &str, fields: Document| -> Queue {
            let mut queue =
                doc! { "_id": bson::oid::ObjectId::new(), "name": name, "plugin": "P", "threads": 1 };
            queue.extend(fields);
            bson::deserialize_from_document(queue).unwrap()
        };
        let queues = [
            queue("fine", doc! {}),
            queue("none", doc! { "plugin": null }),
            queue("other", doc! { "plugin": "Q" }),
            queue("elsewhere", doc! { "nodes": ["n9"] }),
            queue("paused", doc! { "plugin": "Q", "paused": true }),
            queue("closed", doc! { "plugin": "Q", "threads": 0 }),
        ];
        let nodes = [node("n1", doc! {})];
        let findings = Fleet::new(&nodes, now()).queues(&queues);
        assert_eq!(found(&findings), [("error", "none"), ("error", "other"), ("error", "elsewhere")]);
        let gone = [node("n1", doc! { "seen": at(-900) })];
        assert_eq!(
            found(&Fleet::new(&gone, now()).queues(&queues)),
            [("error", "none")],
            "nodes are told of elsewhere"
        );
    }
}
