//! What a blocked task waits for: other tasks, or a lock.

use super::words::{counted, list, moment};
use super::{Facts, Gate};
use crate::admission::{Rule, Scope};
use crate::gates::{AfterFailed, AfterWhen, LockMode, LockWait, Relative, Waits};
use crate::model::Status;

/// So many others stand for that and more.
const COUNTED: u64 = 1_000;

/// What it waits for, in a few words. `None`: for nothing that is known here.
pub(super) fn what(facts: &Facts) -> Option<String> {
    if facts.task.status != Status::Blocked {
        return None;
    }
    let waits = &facts.waits;
    match facts.task.rest.get_str("gate") {
        Ok("new") => Some("a DEN looks within seconds what it waits for".to_owned()),
        Ok("after") => Some(after(waits)),
        Ok("admission") => Some(held(facts.held_by.as_ref())),
        Ok("key") => Some("it is looked whether another task has its key".to_owned()),
        Ok("array") => Some("it waits until all elements of its array have ended".to_owned()),
        Ok("locks") => waits.lock.as_ref().map(|lock| format!("it waits for the lock {}", lock.name)),
        _ => None, // Not one of those that are passed by themselves.
    }
}

/// Which rule of admission holds it.
fn held(rule: Option<&Rule>) -> String {
    let Some(rule) = rule else {
        return "no rule of admission holds it any more, so it goes on within seconds".to_owned();
    };
    let whose = match &rule.scope {
        Scope::All => "all tasks".to_owned(),
        Scope::Queue(_) => "its queue".to_owned(),
        Scope::Tenant(tenant) => format!("the tenant {tenant}"),
        Scope::Owner(owner) => format!("tasks of {owner}"),
    };
    let why = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("it is held until the rule of admission for {whose} is lifted{why}")
}

fn after(waits: &Waits) -> String {
    let (left, end) = (counted(waits.parents_left, "task"), if waits.parents_left == 1 { "s" } else { "" });
    match waits.when {
        AfterWhen::Succeeded => format!("it waits until {left} succeed{end}"),
        AfterWhen::Finished => format!("it waits until {left} end{end}"),
        AfterWhen::Any => format!("it waits until one of {left} succeeds"),
    }
}

/// Each of those that it waits for; who has the lock that it waits for, and who waits for that before it.
pub(super) fn gates(facts: &Facts) -> Vec<Gate> {
    let waits = &facts.waits;
    let mut gates: Vec<Gate> = waits.parents.iter().map(|parent| of_parent(parent, waits)).collect();
    let told = waits.parents.len() as u64;
    if waits.parents_left > told {
        let more = counted(waits.parents_left - told, "more task");
        gates.push(Gate::new("after", false, format!("It comes after {more}.")));
    }
    if let Some(lock) = &waits.lock {
        gates.push(Gate::new("lock", false, holders(lock)));
        gates.push(before(lock));
    }
    gates
}

fn of_parent(parent: &Relative, waits: &Waits) -> Gate {
    let it = name(parent);
    let text = match parent.status {
        None => format!("It comes after {it}, which no longer exists."),
        Some(status)
            if status.has_ended()
                && waits.failed == AfterFailed::Wait
                && waits.when != AfterWhen::Finished =>
        {
            format!(
                "It comes after {it}, which is {}: it waits until that is tried again and succeeds.",
                status.word()
            )
        }
        Some(status) => format!("It comes after {it}, which is {}.", status.word()),
    };
    Gate::new("after", false, text)
}

/// `the task 6b00.. on n1`
fn name(task: &Relative) -> String {
    let node = task.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    match task.id {
        Some(id) => format!("the task {id}{node}"),
        None => "a task of another queue".to_owned(),
    }
}

fn holders(lock: &LockWait) -> String {
    let how = match lock.mode {
        LockMode::Exclusive => "alone".to_owned(),
        LockMode::Shared => "together with others that share it".to_owned(),
        LockMode::Places(places) => format!("as one of {}", counted(u64::from(places), "place")),
    };
    let wants = format!("It wants the lock {} {how}", lock.name);
    if lock.holders.is_empty() {
        return format!("{wants}, which nobody has.");
    }
    let holder = |task: &Relative| {
        let status = task.status.map(|status| status.word().to_owned());
        let since = task.since.map(|since| format!("since {}", moment(since)));
        let how: Vec<String> = status.into_iter().chain(since).collect();
        format!("{} ({})", name(task), how.join(", "))
    };
    let mut all: Vec<String> = lock.holders.iter().map(holder).collect();
    let told = all.len() as u64;
    if lock.held_by > told {
        all.push(counted(lock.held_by - told, "more task"));
    }
    format!("{wants}, which is held by {}.", list(&all))
}

fn before(lock: &LockWait) -> Gate {
    let text = match lock.before {
        0 => return Gate::new("lock_turn", true, format!("It is the next to get the lock {}.", lock.name)),
        COUNTED.. => "1,000+ tasks wait".to_owned(),
        1 => "1 task waits".to_owned(),
        before => format!("{before} tasks wait"),
    };
    Gate::new("lock_turn", false, format!("{text} for the lock {} before it.", lock.name))
}
