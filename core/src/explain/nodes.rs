//! Which node could claim a task, and what keeps the others from it.

use bson::{Bson, Document};
use disbatch_wire::explanations::NodeChance;

use super::facts::name;
use super::{Facts, Gate, Hold, Reader, list, moment};
use crate::model::{Node, NodeSelector};
use crate::node::Peer;
use crate::node::shares::{Contender, PATIENCE, shares};
use crate::plugin::{Report, lacks};

/// So many of the nodes are named that have the same against them.
const NAMED: usize = 20;

/// Gates for all nodes together, and one for each that is alive. Who may not look at nodes is told only whether there are
/// such.
pub(super) fn gates(facts: &Facts, reader: Reader) -> Vec<Gate> {
    if let Some(gate) = none_alive(facts, reader) {
        return vec![gate];
    }
    let living: Vec<&Node> = facts.nodes.iter().filter(|node| facts.is_alive(node)).collect();
    match reader {
        Reader::OfAll => each(facts, &living),
        Reader::OfQueue => together(facts, &living),
    }
}

/// The closed gate of all nodes, if no DEN is alive.
pub(super) fn none_alive(facts: &Facts, reader: Reader) -> Option<Gate> {
    if facts.nodes.iter().any(|node| facts.is_alive(node)) {
        return None;
    }
    let text = match reader {
        Reader::OfAll => nobody(facts),
        Reader::OfQueue => "No DEN is alive.".to_owned(),
    };
    Some(Gate::new("nodes_alive", false, text))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// It claims nothing: it is draining, or may run no task.
    Closed,
    Queue,
    Plugin,
    /// It runs as many tasks as it may.
    Slots,
}

pub(super) fn chances(facts: &Facts) -> Vec<NodeChance> {
    facts.nodes.iter().filter(|node| facts.is_alive(node)).map(|node| chance(facts, node)).collect()
}

fn chance(facts: &Facts, node: &Node) -> NodeChance {
    let why: Vec<String> = against(facts, node).into_iter().map(|(_, text)| text).collect();
    NodeChance { node: name(Some(&node.node)), able: why.is_empty(), why }
}

/// What nodes lack that are alive, if none can claim the task.
pub(super) fn lack(facts: &Facts) -> Hold {
    let living = facts.nodes.iter().filter(|node| facts.is_alive(node));
    let obstacles: Vec<Vec<Obstacle>> =
        living.map(|node| against(facts, node).iter().map(|(obstacle, _)| *obstacle).collect()).collect();
    let serving = || obstacles.iter().filter(|obstacles| !obstacles.contains(&Obstacle::Queue));
    if serving().any(|obstacles| obstacles[..] == [Obstacle::Slots]) {
        Hold::Limit
    } else if serving().count() > 0 && serving().all(|obstacles| obstacles.contains(&Obstacle::Plugin)) {
        Hold::Plugin
    } else {
        Hold::Nodes
    }
}

/// What nodes there are, and what is to be done about them, is for others.
fn together(facts: &Facts, living: &[&Node]) -> Vec<Gate> {
    let open = living.iter().any(|node| against(facts, node).is_empty());
    let text = if open {
        "A node can claim it."
    } else {
        "No node can claim it: whoever may look at all queues is told why."
    };
    vec![Gate::new("nodes_alive", true, "At least one DEN is alive."), Gate::new("nodes_able", open, text)]
}

fn each(facts: &Facts, living: &[&Node]) -> Vec<Gate> {
    let chances: Vec<NodeChance> = living.iter().map(|node| chance(facts, node)).collect();
    let names: Vec<String> = chances.iter().map(|chance| chance.node.clone()).collect();
    let is = if names.len() == 1 { "The DEN of 1 node is" } else { "The DENs of several nodes are" };
    let mut gates = vec![Gate::new("nodes_alive", true, format!("{is} alive: {}.", list(&names)))];
    let open = chances.iter().any(|chance| chance.able);
    let text = if open {
        "A node can claim it.".to_owned()
    } else {
        let each = in_groups(&chances, |name, why| format!("{name}: {why}"));
        format!("No node can claim it. {}.", each.join("; "))
    };
    gates.push(Gate::new("nodes_able", open, text));
    let each = || living.iter().zip(&chances);
    let able: Vec<&Node> = each().filter(|(_, chance)| chance.able).map(|(node, _)| *node).collect();
    let at_their_share = at_their_share(facts, &able);
    gates.extend(each().map(|(node, chance)| of_node(node, chance, &at_their_share)));
    gates
}

pub(super) fn unable(facts: &Facts) -> Vec<String> {
    let told = in_groups(&chances(facts), |name, why| format!("{name} cannot claim it: {why}"));
    told.into_iter().map(|text| format!("{text}.")).collect()
}

/// What is against nodes, in order; those that have the same against them are told together, and `one` tells of one alone.
fn in_groups(chances: &[NodeChance], one: impl Fn(&str, String) -> String) -> Vec<String> {
    let mut groups: Vec<(&[String], Vec<String>)> = Vec::new();
    for NodeChance { node, why, .. } in chances.iter().filter(|chance| !chance.able) {
        match groups.iter_mut().find(|(known, _)| *known == why.as_slice()) {
            Some((_, nodes)) => nodes.push(node.clone()),
            None => groups.push((why.as_slice(), vec![node.clone()])),
        }
    }
    let of = |(against, mut nodes): (&[String], Vec<String>)| {
        if let [node] = &nodes[..] {
            return one(node, list(against));
        }
        let count = nodes.len();
        let more = count.saturating_sub(NAMED);
        nodes.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = nodes.join(", ") + &more;
        match against.iter().map(|text| of_several(text)).collect::<Option<Vec<String>>>() {
            Some(why) => format!("{count} nodes {}: {names}", list(&why)),
            None => format!("{count} nodes ({names}): {}", list(against)),
        }
    };
    groups.into_iter().map(of).collect()
}

/// What is said of one node, of several, if there is a sentence for that.
fn of_several(text: &str) -> Option<String> {
    let verbs = [("it does not ", "do not "), ("it cannot ", "cannot "), ("it is ", "are ")];
    verbs.into_iter().find_map(|(one, several)| Some(format!("{several}{}", text.strip_prefix(one)?)))
}

/// The nodes that have their shares of the queue's slots, and leave those that are free to others for a moment.
fn at_their_share(facts: &Facts, able: &[&Node]) -> Vec<(String, u64)> {
    let Some(queue) = &facts.queue else { return Vec::new() };
    let running =
        |node: &str| facts.shares.iter().find(|share| share.node == node).map_or(0, |share| share.tasks);
    let peers = able.iter().filter_map(|node| Peer::of(node));
    let peers: Vec<(u64, Peer)> = peers.map(|peer| (running(&peer.name), peer)).collect();
    let contenders: Vec<Contender> = peers.iter().map(|(running, peer)| peer.contender(*running)).collect();
    let shares = shares(queue.claim_limit(), &contenders);
    let all = || peers.iter().zip(&shares);
    let is_free = facts.shares.iter().map(|share| share.tasks).sum::<u64>() < queue.claim_limit();
    if !is_free || !all().any(|((running, _), share)| running < share) {
        return Vec::new();
    }
    let full = all().filter(|((running, _), share)| running >= share);
    full.map(|((_, peer), share)| (peer.name.clone(), *share)).collect()
}

fn nobody(facts: &Facts) -> String {
    let seen = |node: &Node| Some((node.timestamp()?, name(Some(&node.node))));
    match facts.nodes.iter().filter_map(seen).max_by_key(|(at, _)| *at) {
        None => "No DEN is alive, and none has been seen yet.".to_owned(),
        Some((at, node)) => {
            format!("No DEN is alive: the last one seen was that of {node} at {}.", moment(at))
        }
    }
}

fn against(facts: &Facts, node: &Node) -> Vec<(Obstacle, String)> {
    let mut against = Vec::new();
    if node.is_draining() || node.state() == Some("draining") {
        against.push((Obstacle::Closed, "it is draining".to_owned()));
    }
    against.extend(not_selected(facts, node).map(|text| (Obstacle::Queue, text)));
    against.extend(not_served(facts, node).map(|text| (Obstacle::Queue, text)));
    against.extend(without_plugin(facts, node).map(|text| (Obstacle::Plugin, text)));
    let busy = facts.busy.get(&name(Some(&node.node))).copied().unwrap_or(0);
    match node.thread_limit() {
        Some(0) => against.push((Obstacle::Closed, "its maxthreads is 0".to_owned())),
        Some(limit) if busy >= limit => {
            against.push((Obstacle::Slots, format!("{busy} of its {limit} maxthreads are taken")));
        }
        Some(_) | None => {}
    }
    against
}

fn of_node(node: &Node, chance: &NodeChance, at_their_share: &[(String, u64)]) -> Gate {
    let this = &chance.node;
    if !chance.able {
        return Gate::new(Gate::NODE, false, format!("{this} cannot claim it: {}.", list(&chance.why)));
    }
    let share = at_their_share.iter().find(|(name, _)| name == this).map(|(_, share)| *share);
    let text = if let Some(share) = share {
        let seconds = PATIENCE.as_secs();
        format!(
            "{this} can claim it, but has its share of the slots, {share}: \
             those that are free are left for other nodes for up to {seconds} s."
        )
    } else if node.is_ours() {
        format!("{this} can claim it.")
    } else {
        format!(
            "{this} may claim it; which queues and plugins it serves is not known, as it runs another program."
        )
    };
    Gate::new(Gate::NODE, true, text)
}

/// Whether the queue is for other nodes. Programs of Perl do not know of that.
fn not_selected(facts: &Facts, node: &Node) -> Option<String> {
    let nodes = facts.queue.as_ref().and_then(NodeSelector::of).filter(|_| node.is_ours())?;
    let is_admitted = nodes.admits(&name(Some(&node.node)), &node.labels());
    (!is_admitted).then(|| format!("the queue is for other nodes ({nodes})"))
}

fn not_served(facts: &Facts, node: &Node) -> Option<String> {
    let serves = node.rest.get("serves").and_then(Bson::as_document)?;
    let has = |serves: &Document, field: &str| {
        let ids = serves.get_array(field).ok()?;
        Some(ids.iter().any(|id| id.as_object_id() == Some(facts.task.queue.0)))
    };
    match (has(serves, "active"), has(serves, "ignored")) {
        (Some(false), _) => Some("its configuration (activequeues) leaves the queue out".to_owned()),
        (None, Some(true)) => Some("its configuration (ignorequeues) ignores the queue".to_owned()),
        _ => None,
    }
}

fn without_plugin(facts: &Facts, node: &Node) -> Option<String> {
    let needed = facts.queue.as_ref()?.needed_plugins().ok()?;
    let plugin = lacks(&node.rest, &needed)?.into_iter().next()?;
    let told = Report::of_node(&node.rest);
    let of_plugin = told.iter().find(|report| report.plugin.as_deref() == Some(plugin.as_str()));
    // It may be one whose manifest cannot be read.
    let unnamed = told.iter().find(|report| report.plugin.is_none());
    Some(match (of_plugin, unnamed) {
        (Some(report), _) => format!("it cannot run {}: {}", plugin.words(), report.why),
        (None, Some(report)) => format!("it does not have {} ({})", plugin.words(), report.why),
        (None, None) => format!("it does not have {}", plugin.words()),
    })
}
