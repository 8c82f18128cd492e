//! Why a task does not run, how it runs, or how it ended, and what holds a queue ([`hold`]): facts in, sentences for an operator out. Pure; the facts
//! are gathered by [`crate::store::Store::facts_of_task`] and [`crate::store::Store::head_of_queue`].

mod facts;
mod head;
mod nodes;
mod started;
mod waits;

use bson::DateTime;

pub use disbatch_wire::explanations::Gate;
pub use facts::{Ahead, Facts, Share};
pub use head::{Head, Heads, Hold, Holding, hold};

use crate::accounts::Reach;
use crate::budget::cut;
use crate::model::{Status, Task, date_time};
use crate::task::SetAside;
use crate::task::question::{Awaiting, OnDeadline};
use crate::text::list;

/// So many bytes of a node that is none are shown.
const NODE: usize = 100;

/// The gate of a task that is set aside.
const ASIDE: &str = "aside";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Somebody who may look at everything.
    OfAll,
    /// Somebody who may look at some queues. What other nodes than the task's own are called, and what they have to do,
    /// is not for them.
    OfQueue,
}

impl Reader {
    pub fn of(reach: &Reach) -> Self {
        if *reach == Reach::All { Self::OfAll } else { Self::OfQueue }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub status: Status,
    /// The first closed gate, or what is going on.
    pub summary: String,
    /// What it has to pass, in the order in which that is looked at.
    pub gates: Vec<Gate>,
    /// What keeps nodes that are alive from claiming it, which their gates say of each: those together that lack the same.
    pub unable: Vec<String>,
}

pub fn explain(facts: &Facts, reader: Reader) -> Explanation {
    let status = facts.task.status;
    let mut gates = match status {
        Status::Claimed => started::claimed(facts),
        Status::Running => started::running(facts),
        ended if ended.has_ended() => started::ended(facts),
        _ => waiting(facts, reader), // All others are not claimed, or not yet.
    };
    if let Some(aside) = facts.aside.as_ref().filter(|aside| still_aside(facts, aside)) {
        gates.insert(0, of_aside(status, aside));
    }
    let closed = gates.iter().find(|gate| gate.is_closed());
    let summary = match closed.or(gates.first()) {
        Some(gate) if closed.is_some() || status.has_ended() || status == Status::Running => {
            gate.text.clone()
        }
        _ => "Nothing keeps it from being claimed; a DEN should take it within seconds.".to_owned(),
    };
    let names_nodes = gates.iter().any(|gate| gate.name == Gate::NODE);
    let unable = if names_nodes { nodes::unable(facts) } else { Vec::new() };
    Explanation { status, summary, gates, unable }
}

fn waiting(facts: &Facts, reader: Reader) -> Vec<Gate> {
    let mut gates = vec![of_status(facts)];
    gates.extend(of_node(&facts.task));
    gates.extend(waits::of_blocked(facts));
    gates.extend(waits::of_queue(facts, reader));
    gates.extend(nodes::gates(facts, reader));
    gates.extend(waits::turn(facts));
    gates
}

fn of_status(facts: &Facts) -> Gate {
    let task = &facts.task;
    let because = facts.last_note().map(|note| format!(" ({note})")).unwrap_or_default();
    match task.status {
        Status::Queued => Gate::new("status", true, "The task is queued."),
        Status::Blocked => {
            let what = waits::what(facts).unwrap_or_else(|| "it waits until somebody queues it".to_owned());
            Gate::new("status", false, format!("The task is blocked{because}: {what}."))
        }
        Status::Deferred => deferred(facts),
        held => Gate::new(
            "status",
            false,
            format!(
                "The task is held by its status {}: no DEN claims it until that is changed.",
                held.code()
            ),
        ),
    }
}

/// What is queued and yet in a node's name: nobody claims it.
fn of_node(task: &Task) -> Option<Gate> {
    let node = task.node.as_ref().filter(|_| task.status == Status::Queued && !task.is_free())?;
    let node = cut(&node.to_string(), NODE);
    let text = format!(
        "The task is queued, but its field node is {node}: only tasks whose node is null are claimed. Set that to null in \
         the database, or cancel the task and retry it."
    );
    Some(Gate::new("task_node", false, text))
}

fn deferred(facts: &Facts) -> Gate {
    if let Some(awaiting) = Awaiting::of(&facts.task) {
        return Gate::new("answer", false, unanswered(&awaiting));
    }
    let failures = facts.task.failures();
    let run_at = facts.time("run_at");
    let when = match run_at {
        Some(at) if at > facts.now => format!("{} (in {})", moment(at), span_until(facts.now, at)),
        Some(at) => format!("{}, which is past: a DEN queues it within seconds", moment(at)),
        None => "a time that is not set, so that it waits until somebody queues it".to_owned(),
    };
    if failures == 0 {
        return Gate::new("status", false, format!("The task is deferred until {when}."));
    }
    let most = facts.most_attempts().map(|most| format!(" of {most}")).unwrap_or_default();
    let text = format!("Failure {failures}{most}; the next attempt follows after {when}.");
    Gate::new("status", false, text)
}

/// Whose answer a task waits for, since when, and until when.
fn unanswered(awaiting: &Awaiting) -> String {
    let since = awaiting.asked.map(|at| format!(" since {}", moment(at))).unwrap_or_default();
    let then = match awaiting.on_deadline {
        OnDeadline::Cancel => "is cancelled",
        OnDeadline::Continue => "goes on without one",
    };
    let until = awaiting.deadline.map(|at| format!(", and {then} after {}", moment(at))).unwrap_or_default();
    let (who, title) = (awaiting.who_in_words(), &awaiting.title);
    format!("The task waits for an answer of {who}{since}{until}: {title}")
}

/// Whether it still matters that the task was set aside: it may have run since, and one that has ended tells why by itself if it has
/// room for that.
fn still_aside(facts: &Facts, aside: &SetAside) -> bool {
    let changed = facts.task.mtime.as_ref().and_then(date_time);
    let is_newer = changed.is_none_or(|changed| changed <= aside.at);
    (is_newer && !facts.task.status.has_ended()) || !facts.task.rest.contains_key("history")
}

fn of_aside(status: Status, aside: &SetAside) -> Gate {
    let (at, reason) = (moment(aside.at), &aside.reason);
    if status.has_ended() {
        let text = format!("It was ended at {at}, as nothing else could be done with it: {reason}.");
        return Gate::new(ASIDE, true, text);
    }
    let text = format!(
        "It is set aside since {at}, as the database refuses what is to be done with it: {reason}. It is tried again from time to time, \
         and holds up no other task; it can be cancelled."
    );
    Gate::new(ASIDE, false, text)
}

/// Of a task that cannot be read: with what is known of its status, and why it cannot.
pub fn unreadable(status: Status, why: &str, aside: Option<&SetAside>) -> Explanation {
    let text = format!("The task cannot be read: {why}.");
    let mut gates = vec![Gate::new("document", false, text.clone())];
    gates.extend(aside.map(|aside| of_aside(status, aside)));
    Explanation { status, summary: text, gates, unable: Vec::new() }
}

/// `2026-11-20 08:24:27 UTC`
fn moment(at: DateTime) -> String {
    match at.try_to_rfc3339_string() {
        Ok(text) if text.len() >= 19 => format!("{} UTC", text[..19].replace('T', " ")),
        _ => format!("{} ms since 1970", at.timestamp_millis()),
    }
}

/// How long it is from one time to a later one; 0 seconds if it is not later.
fn span_until(from: DateTime, to: DateTime) -> String {
    let seconds = to.timestamp_millis().saturating_sub(from.timestamp_millis()).max(0) / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds % 86_400 / 3_600, seconds % 3_600 / 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (1, _, _) => format!("1 day {hours} h"),
        _ => format!("{days} days {hours} h"),
    }
}

/// `1 task`, `3 tasks`
fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
