//! What a task waits for: other tasks, a lock, its queue, or its turn in it.

use std::time::Duration;

use bson::DateTime;

use super::facts::COUNTED;
use super::{Ahead, Facts, Gate, Reader, Share, counted, list, moment, span_until};
use crate::admission::{Rule, Scope};
use crate::canary::percent;
use crate::fair::Before;
use crate::gates::{AfterFailed, AfterWhen, LockMode, LockWait, Relative, Waits};
use crate::model::{Canary, Queue, Status, count};
use crate::rate::Standing;

/// What it waits for, in a few words. `None`: for nothing that is known here.
pub(super) fn what(facts: &Facts) -> Option<String> {
    if facts.task.status != Status::Blocked {
        return None;
    }
    let waits = &facts.waits;
    match facts.task.rest.get_str("gate") {
        Ok("new") => Some("a DEN looks within seconds what it waits for".to_owned()),
        Ok("after") => Some(for_others(waits)),
        Ok("admission") => Some(held(facts.held_by.as_ref())),
        Ok("key") => Some("it is looked whether another task has its key".to_owned()),
        Ok("array") => Some("it waits until all elements of its array have ended".to_owned()),
        Ok("locks") => waits.lock.as_ref().map(|lock| format!("it waits for the lock {}", lock.name)),
        _ => None, // Not one of those that are passed by themselves.
    }
}

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

fn for_others(waits: &Waits) -> String {
    let (left, end) = (counted(waits.parents_left, "task"), if waits.parents_left == 1 { "s" } else { "" });
    match waits.when {
        AfterWhen::Succeeded => format!("it waits until {left} succeed{end}"),
        AfterWhen::Finished => format!("it waits until {left} end{end}"),
        AfterWhen::Any => format!("it waits until one of {left} succeeds"),
    }
}

/// Each of those that it waits for; who has the lock that it waits for, and who waits for that before it.
pub(super) fn of_blocked(facts: &Facts) -> Vec<Gate> {
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
        let gone = task.is_queue_gone.then(|| "its queue is gone".to_owned());
        let how: Vec<String> = status.into_iter().chain(since).chain(gone).collect();
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

/// Each thing about the queue that a task has to pass.
pub(super) fn of_queue(facts: &Facts, reader: Reader) -> Vec<Gate> {
    let Some(queue) = &facts.queue else {
        let text = format!("The queue with the id {} is gone.", facts.task.queue);
        return vec![Gate::new("queue", false, text)];
    };
    let name = queue.display_name();
    let mut gates = vec![
        Gate::new("queue", true, format!("The queue {name} is there.")),
        paused(queue, &name),
        plugin(queue, &name),
        threads(queue, &name),
        limit(facts, queue, &name, reader),
    ];
    gates.extend(queue.unknown_sort().map(|sort| {
        let text = format!(
            "The queue {name} has the unknown order \"{sort}\" (sort), so that it has the default one."
        );
        Gate::new("queue_sort", true, text)
    }));
    gates.extend(rates(facts, &name));
    gates
}

fn paused(queue: &Queue, name: &str) -> Gate {
    let text = match (queue.is_paused(), queue.reason()) {
        (false, _) => format!("The queue {name} is not paused."),
        (true, None) => format!("The queue {name} is paused."),
        (true, Some(reason)) => format!("The queue {name} is paused: {reason}."),
    };
    Gate::new("queue_paused", !queue.is_paused(), text)
}

fn plugin(queue: &Queue, name: &str) -> Gate {
    let (open, text) = match queue.effective_plugin() {
        Ok(Some(plugin)) => (true, format!("Its tasks are run by {}{}.", plugin.words(), tried(queue))),
        Ok(None) => (false, format!("The queue {name} names no plugin.")),
        Err(error) => (false, format!("The plugin of the queue {name} cannot be used: {error}.")),
    };
    Gate::new("queue_plugin", open, text)
}

fn tried(queue: &Queue) -> String {
    let of =
        |canary: Canary| format!(", and {} of them by version {}", percent(canary.share), canary.version);
    Canary::of(queue).map(of).unwrap_or_default()
}

fn threads(queue: &Queue, name: &str) -> Gate {
    let (open, text) = match (queue.rest.get("threads").and_then(count), queue.thread_limit()) {
        (None, _) => (false, format!("The queue {name} has no threads set, so that none of its tasks run.")),
        (_, 0) => (false, format!("The queue {name} has 0 threads, so that none of its tasks run.")),
        (_, 1) => (true, format!("The queue {name} may run 1 task at once.")),
        (_, threads) => (true, format!("The queue {name} may run {threads} tasks at once.")),
    };
    Gate::new("queue_threads", open, text)
}

fn limit(facts: &Facts, queue: &Queue, name: &str, reader: Reader) -> Gate {
    let (running, threads) =
        (facts.shares.iter().map(|share| share.tasks).sum::<u64>(), queue.thread_limit());
    if running == 0 {
        return Gate::new("queue_limit", true, format!("No task of the queue {name} runs."));
    }
    let open = running < threads;
    let shares: Vec<String> = facts.shares.iter().map(describe).collect();
    let shares = if reader == Reader::OfAll { format!(", {}", list(&shares)) } else { String::new() };
    let text = if open {
        format!("{running} of {threads} threads of the queue are in use{shares}.")
    } else {
        format!("The queue is full: {running} of {threads} threads are in use{shares}.")
    };
    Gate::new("queue_limit", open, text)
}

fn describe(share: &Share) -> String {
    let node = if share.node.is_empty() { "an unknown node" } else { &share.node };
    match share.of_others {
        0 => format!("{} on {node}", share.tasks),
        others if others == share.tasks => format!("{} on {node} (by another program)", share.tasks),
        others => format!("{} on {node} ({others} by another program)", share.tasks),
    }
}

/// What its rate, and the one of its groups, allow.
fn rates(facts: &Facts, name: &str) -> impl Iterator<Item = Gate> {
    let of_queue = facts.rate.map(|rate| ("queue_rate", format!("queue {name}"), rate));
    let group = facts.task.rest.get("group").and_then(bson::Bson::as_str).unwrap_or_default();
    let group = if group.is_empty() { "tasks without a group".to_owned() } else { format!("group {group}") };
    let of_group = facts.group_rate.map(|rate| ("group_rate", group, rate));
    let now = facts.now;
    of_queue.into_iter().chain(of_group).map(move |(gate, whose, Standing { rate, allowed, next })| {
        let of = format!("The rate of the {whose}, {} in {} s, allows", rate.n, rate.per);
        let text = match next {
            None => format!("{of} {} now.", counted(allowed, "start")),
            Some(next) => format!("{of} the next start in {}.", span_until(now, after(now, next))),
        };
        Gate::new(gate, next.is_none(), text)
    })
}

/// So long after a time, and on to the next whole second.
pub(super) fn after(now: DateTime, next: Duration) -> DateTime {
    let seconds = i64::try_from(next.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
    now.saturating_add_millis(seconds.saturating_mul(1000))
}

pub(super) fn turn(facts: &Facts) -> Option<Gate> {
    facts.queue.as_ref()?;
    if facts.task.status != Status::Queued {
        return None;
    }
    Some(match facts.ahead {
        Ahead::Tasks(0) => Gate::new("turn", true, "It is next in its queue."),
        Ahead::Tasks(1) => Gate::new("turn", false, "1 task is ahead of it in its queue."),
        Ahead::Tasks(COUNTED..) => Gate::new("turn", false, "1,000+ tasks are ahead of it in its queue."),
        Ahead::Tasks(ahead) => {
            Gate::new("turn", false, format!("{ahead} tasks are ahead of it in its queue."))
        }
        Ahead::Unordered(0) => Gate::new("turn", true, "No other task waits in its queue."),
        Ahead::Unordered(others) => {
            let others =
                if others >= COUNTED { "1,000+ other tasks".into() } else { counted(others, "other task") };
            let text = format!(
                "Its queue has no order (sort), and {others} in it wait too: which is next is not known."
            );
            Gate::new("turn", true, text)
        }
        Ahead::InGroup(before) => turn_of_group(facts, before),
    })
}

/// Whether it is the turn of its group, and of this task within it.
fn turn_of_group(facts: &Facts, Before { turns, tasks, full }: Before) -> Gate {
    let group = facts.task.rest.get("group").and_then(bson::Bson::as_str).unwrap_or_default();
    let group = match group {
        "" => "the group of the tasks without one".to_owned(),
        group => format!("its group {group}"),
    };
    if let Some(threads) = full {
        let running = counted(threads, "task");
        let text = format!("Of {group}, {running} may run at once, and as many are claimed or running.");
        return Gate::new("turn", false, text);
    }
    let before = match tasks {
        0 => "this task is the next of it".to_owned(),
        COUNTED.. => "1,000+ tasks of it come before this one".to_owned(),
        1 => "1 task of it comes before this one".to_owned(),
        tasks => format!("{tasks} tasks of it come before this one"),
    };
    let turn = match turns {
        None => format!("Too many groups wait to tell when it is the turn of {group}"),
        Some(0) => format!("The next turn is that of {group}"),
        Some(1) => format!("1 turn comes before that of {group}"),
        Some(turns) => format!("{turns} turns come before that of {group}"),
    };
    Gate::new("turn", turns == Some(0) && tasks == 0, format!("{turn}, and {before}."))
}
