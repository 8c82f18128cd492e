//! A task that is over.

use bson::{Bson, Document};

use super::words::{counted, moment};
use super::{Facts, Gate};
use crate::model::{Moment, Status, number};

/// How it ended.
pub(super) fn gates(facts: &Facts) -> Vec<Gate> {
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
    let at = task.mtime.as_ref().and_then(Moment::get);
    let at = at.map(|at| format!(" at {}", moment(at))).unwrap_or_default();
    let note = facts.last_note().map(|note| format!(": {note}")).unwrap_or_default();
    let good = task.status == Status::Succeeded;
    let mut gates = vec![Gate::new("ended", true, format!("{how}{node}{at}{note}."))];
    gates.extend(task.rest.get_document("exit").ok().filter(|_| !good).and_then(exit));
    if let Some(most) = facts.most_attempts()
        && task.failures() > 0
        && !good
    {
        // The failure that ends a task is not among those that were counted.
        let failures = task.failures() + i64::from(task.status == Status::Failed);
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
