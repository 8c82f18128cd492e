//! A task that a node has or a web service works on, and one that is over.

use bson::{Bson, DateTime, Document};

use super::facts::name;
use super::{Facts, Gate, counted, moment, span_until};
use crate::model::{Node, Status, date_time, number, whole_number};
use crate::store::millis;
use crate::task::cover::is_covered;
use crate::task::{EXTERNAL, INTERRUPT, is_detached};

pub(super) fn claimed(facts: &Facts) -> Vec<Gate> {
    let node = facts.node().unwrap_or("An unknown node");
    let since = since(changed(facts), facts);
    let text = format!("{node} has claimed it{since}; its runner has not started it yet.");
    let (open, lease) = match facts.time("lease_until") {
        Some(until) if until < facts.now => {
            (false, format!("Its claim held until {}: a DEN queues it again within seconds.", moment(until)))
        }
        Some(until) => (true, format!("Its claim holds until {}; then it is queued again.", moment(until))),
        None if is_nobodys(facts) => (false, nobodys("queues it again")),
        None => {
            let text = "Its claim has no lease, as one of another program: if it is not started within 5 minutes, it is \
                        orphaned.";
            (true, text.to_owned())
        }
    };
    let mut gates = vec![Gate::new("runner", false, text), Gate::new("lease", open, lease)];
    gates.extend(state_of_node(facts));
    gates
}

pub(super) fn running(facts: &Facts) -> Vec<Gate> {
    if is_detached(&facts.task) {
        return with_service(facts);
    }
    let node = facts.node().unwrap_or("an unknown node");
    let since = since(facts.time("started").or_else(|| changed(facts)), facts);
    let text = format!("It runs on {node}{since}{}.", attempt(facts));
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
    if is_covered(until) {
        let text = "Its DEN answers for it, as long as it hears its runner: it has no lease that ends.";
        return Gate::new("lease", true, text);
    }
    if until < facts.now {
        let text = format!(
            "The lease of its runner ran out at {} ({} ago): it has died or cannot reach the database.",
            moment(until),
            span_until(until, facts.now)
        );
        return Gate::new("lease", false, text);
    }
    let sign = own_node(facts).and_then(Node::last_beat).map(|(_, lease)| {
        let renewed = until.saturating_add_millis(-millis(lease));
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
    let is = if alive { "is" } else { "is not" };
    Some(Gate::new("nodes_alive", alive, format!("The DEN of {this} {is} alive.")))
}

fn changed(facts: &Facts) -> Option<DateTime> {
    facts.task.mtime.as_ref().and_then(date_time)
}

fn since(at: Option<DateTime>, facts: &Facts) -> String {
    at.map(|at| format!(" since {} ({})", moment(at), span_until(at, facts.now))).unwrap_or_default()
}

fn attempt(facts: &Facts) -> String {
    let attempt = facts.task.attempt().filter(|attempt| *attempt > 1);
    attempt.map(|attempt| format!(", as attempt {attempt}")).unwrap_or_default()
}

/// What it waits for, and how long that is done.
fn with_service(facts: &Facts) -> Vec<Gate> {
    let empty = Document::new();
    let external = facts.task.rest.get_document(EXTERNAL).unwrap_or(&empty);
    let time = |field: &str| external.get_datetime(field).ok().copied();
    if external.get_document("end").is_ok() {
        let text = "Its web service has ended it, or somebody has: its output is being put together.";
        return vec![Gate::new("running", true, text)];
    }
    let (since, attempt) = (since(time("since"), facts), attempt(facts));
    let text = format!("It waits for its web service{since}{attempt}; no runner is occupied.");
    let mut gates = vec![Gate::new("running", true, text)];
    gates.extend(time("heard").map(|at| heard(at, external.get_bool("called").unwrap_or(false), facts)));
    gates.extend(facts.time("lease_until").map(|until| silence(until, time("until"), facts)));
    gates
}

fn heard(at: DateTime, has_called: bool, facts: &Facts) -> Gate {
    let (moment, ago) = (moment(at), span_until(at, facts.now));
    let text = if has_called {
        format!("It was last heard of at {moment}, {ago} ago.")
    } else {
        format!("Nothing was heard of it since it has taken the task at {moment}, {ago} ago.")
    };
    Gate::new("heard", true, text)
}

fn silence(until: DateTime, hard: Option<DateTime>, facts: &Facts) -> Gate {
    if until < facts.now {
        let text = format!("Its time was over at {}: a DEN ends it within seconds.", moment(until));
        return Gate::new("lease", false, text);
    }
    let (moment, left) = (moment(until), span_until(facts.now, until));
    let text = if hard.is_some_and(|hard| hard <= until) {
        format!("Whatever is heard of it, its time is over at {moment}, in {left}.")
    } else {
        format!("If nothing is heard of it until {moment}, in {left}, it is ended.")
    };
    Gate::new("lease", true, text)
}

pub(super) fn ended(facts: &Facts) -> Vec<Gate> {
    let task = &facts.task;
    let how = match task.status {
        Status::Succeeded => "It succeeded".to_owned(),
        Status::Failed => "It failed".to_owned(),
        Status::Cancelled => "It was cancelled before it ran".to_owned(),
        Status::Terminated => "It was ended while it ran".to_owned(),
        Status::Orphaned => "Its runner was lost".to_owned(),
        other => format!("It ended with the status {} of its plugin", other.code()),
    };
    let node = facts.node().filter(|_| task.status != Status::Cancelled);
    let node = node.map(|node| format!(" on {node}")).unwrap_or_default();
    let at = changed(facts).map(|at| format!(" at {}", moment(at))).unwrap_or_default();
    let note = facts.last_note().map(|note| format!(": {note}")).unwrap_or_default();
    let good = task.status == Status::Succeeded;
    let mut gates = vec![Gate::new("ended", true, format!("{how}{node}{at}{note}."))];
    gates.extend(task.rest.get_document("exit").ok().filter(|_| !good).and_then(exit));
    if let Some(most) = facts.most_attempts()
        && task.failures() > 0
        && !good
    {
        // The failure that ends a task is not among those that were counted.
        let reason = task.rest.get_document("exit").ok().and_then(|exit| exit.get_str("reason").ok());
        let is_late = matches!(reason, Some("timeout" | "silence"));
        let failed_now = matches!(task.status, Status::Failed | Status::Orphaned)
            || (task.status == Status::Terminated && is_late);
        let failures = task.failures() + i64::from(failed_now);
        let times = counted(failures.unsigned_abs(), "time");
        let text = format!("It has failed {times}; at most {most} are allowed.");
        gates.push(Gate::new("attempts", true, text));
    }
    if let Some(at) = facts.time("archived") {
        let text = format!("It is in the archive, since {}: a retry makes a new task like it.", moment(at));
        gates.push(Gate::new("archived", true, text));
    }
    gates
}

fn exit(exit: &Document) -> Option<Gate> {
    let integer = |name: &str| exit.get(name).and_then(number);
    let how = match (integer("code"), integer("signal")) {
        (Some(code), _) => format!("Its plugin ended with the exit code {code}"),
        (None, Some(signal)) => format!("Its plugin was ended by the signal {signal}"),
        (None, None) => return None,
    };
    let memory =
        if exit.get("oom").and_then(Bson::as_bool) == Some(true) { ", for want of memory" } else { "" };
    let limit = exit.get_str("limit").map(|limit| format!(", by its limit {limit}")).unwrap_or_default();
    Some(Gate::new("exit", true, format!("{how}{memory}{limit}.")))
}
