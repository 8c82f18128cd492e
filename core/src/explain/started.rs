//! A task that a node has.

use super::facts::name;
use super::words::{moment, span_until};
use super::{Facts, Gate, external};
use crate::model::{Node, whole_number};
use crate::task::{INTERRUPT, is_detached};

/// A task that waits for its runner.
pub(super) fn claimed(facts: &Facts) -> Vec<Gate> {
    let node = facts.node().unwrap_or("An unknown node");
    let since = changed(facts);
    let text = format!("{node} has claimed it{since}; its runner has not started it yet.");
    let mut gates = vec![Gate::new("runner", false, text)];
    gates.push(match facts.time("lease_until") {
        Some(until) if until < facts.now => Gate::new(
            "lease",
            false,
            format!("Its claim held until {}: a DEN queues it again within seconds.", moment(until)),
        ),
        Some(until) => Gate::new(
            "lease",
            true,
            format!("Its claim holds until {}; then it is queued again.", moment(until)),
        ),
        None if is_nobodys(facts) => Gate::new("lease", false, nobodys("queues it again")),
        None => Gate::new(
            "lease",
            true,
            "Its claim has no lease, as one of another program: if it is not started within 5 minutes, it is \
             orphaned.",
        ),
    });
    gates.extend(state_of_node(facts));
    gates
}

/// A task that a runner has.
pub(super) fn running(facts: &Facts) -> Vec<Gate> {
    if is_detached(&facts.task) {
        return external::gates(facts);
    }
    let node = facts.node().unwrap_or("an unknown node");
    let since = match facts.time("started") {
        Some(at) => format!(" since {} ({})", moment(at), span_until(at, facts.now)),
        None => changed(facts),
    };
    let attempt = match facts.task.attempt() {
        Some(attempt) if attempt > 1 => format!(", as attempt {attempt}"),
        _ => String::new(),
    };
    let text = format!("It runs on {node}{since}{attempt}.");
    let mut gates = vec![Gate::new("running", true, text), lease(facts)];
    gates.extend(cancel(facts));
    gates.extend(interrupt(facts));
    gates.extend(state_of_node(facts));
    gates
}

/// Whether it is in the name of no node that there is.
fn is_nobodys(facts: &Facts) -> bool {
    facts.node().is_none_or(|name| facts.nodes.iter().all(|node| node.node.as_str() != Some(name)))
}

fn nobodys(what: &str) -> String {
    format!(
        "It has no lease, and no node has that name, so that no process can have it: a DEN {what} within three leases."
    )
}

fn lease(facts: &Facts) -> Gate {
    let Some(until) = facts.time("lease_until") else {
        if is_nobodys(facts) {
            return Gate::new("lease", false, nobodys("orphans it"));
        }
        let text =
            "Its runner renews no lease, as one of another program: whether it still lives is not known.";
        return Gate::new("lease", true, text);
    };
    if until < facts.now {
        let text = format!(
            "The lease of its runner ran out at {} ({} ago): it has died or cannot reach the database.",
            moment(until),
            span_until(until, facts.now)
        );
        return Gate::new("lease", false, text);
    }
    let sign = own_node(facts).and_then(Node::last_beat).map(|(_, lease)| {
        let lease = i64::try_from(lease.as_millis()).unwrap_or(0);
        let renewed = bson::DateTime::from_millis(until.timestamp_millis().saturating_sub(lease));
        format!("Its runner gave its last sign of life {} ago; its", span_until(renewed, facts.now))
    });
    let its = sign.unwrap_or_else(|| "Its".to_owned());
    Gate::new("lease", true, format!("{its} lease holds until {}.", moment(until)))
}

fn cancel(facts: &Facts) -> Option<Gate> {
    let wish = facts.task.rest.get_document("cancel").ok()?;
    let by = wish.get_str("by").unwrap_or("somebody");
    let at = wish.get_datetime("at").map(|at| format!(" at {}", moment(*at))).unwrap_or_default();
    let reason = wish.get_str("reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
    let text = format!("Its end was asked for by {by}{at}{reason}; its runner ends it.");
    Some(Gate::new("cancel", false, text))
}

fn interrupt(facts: &Facts) -> Option<Gate> {
    let told = facts.task.rest.get(INTERRUPT).and_then(whole_number)?;
    let text = "Its node is to be empty: it was told to stop, and goes on elsewhere if its plugin can be interrupted.";
    (Some(told) == facts.task.attempt()).then(|| Gate::new("interrupt", false, text))
}

fn own_node(facts: &Facts) -> Option<&Node> {
    let this = facts.node()?;
    facts.nodes.iter().find(|node| name(Some(&node.node)) == this)
}

fn state_of_node(facts: &Facts) -> Option<Gate> {
    let this = facts.node()?;
    let alive = own_node(facts).is_some_and(|node| facts.is_alive(node));
    let text = if alive {
        format!("The DEN of {this} is alive.")
    } else {
        format!("The DEN of {this} is not alive.")
    };
    Some(Gate::new("nodes_alive", alive, text))
}

fn changed(facts: &Facts) -> String {
    let at = facts.task.mtime.as_ref().and_then(crate::model::Moment::get);
    at.map(|at| format!(" since {} ({})", moment(at), span_until(at, facts.now))).unwrap_or_default()
}
