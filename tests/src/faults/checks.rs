//! What must hold afterwards, whatever happened. Each check lists what violates it.

mod gates;
mod limits;
mod messages;
mod output;
mod recordings;
mod services;
mod times;

use std::collections::{HashMap, HashSet};

use bson::{Bson, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use futures::TryStreamExt;

use super::processes;
use super::records::{self, Run};
use super::service::Served;
use super::ticking::Ticking;
use super::world::{MAX_ATTEMPTS, Queue, World};

pub use limits::{Concurrency, concurrency};
pub use messages::messages;
pub use output::outputs;
pub use recordings::recordings;

/// What is known at the end.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub world: &'a World,
    /// The tasks as they are stored.
    pub tasks: HashMap<TaskId, Document>,
    /// What the plugins say.
    pub runs: Vec<Run>,
    /// What the web service says.
    pub served: Vec<Served>,
    /// Tasks whose submission was acknowledged.
    pub submitted: Vec<TaskId>,
    pub ticking: Ticking,
}

/// An invariant and what violates it.
#[derive(Debug)]
pub struct Verdict {
    /// The invariant.
    pub name: &'static str,
    pub violations: Vec<String>,
}

impl Evidence<'_> {
    pub fn status(task: &Document) -> i64 {
        match task.get("status") {
            Some(Bson::Int32(status)) => i64::from(*status),
            Some(Bson::Int64(status)) => *status,
            _ => i64::MIN,
        }
    }

    /// The number of a task's last attempt.
    pub fn attempt(task: &Document) -> i64 {
        match task.get("attempt") {
            Some(Bson::Int32(attempt)) => i64::from(*attempt),
            Some(Bson::Int64(attempt)) => *attempt,
            _ => 0,
        }
    }

    pub fn queue_of(&self, task: TaskId) -> Option<&Queue> {
        let id = self.tasks.get(&task)?.get_object_id("queue").ok()?;
        self.world.queues.iter().find(|queue| queue.id == QueueId(id))
    }
}

/// The checks that need no database.
pub fn of_tasks(evidence: &Evidence<'_>) -> Vec<Verdict> {
    let verdict = |name, violations| Verdict { name, violations };
    vec![
        verdict("no task is lost", lost(evidence)),
        verdict("no task is there twice", doubled(evidence)),
        verdict("every task ends", not_ended(evidence)),
        verdict("a success has an end", successes_without_end(evidence)),
        verdict("no two runners at a time", two_at_a_time(evidence)),
        verdict("at most once (fail)", more_than_once(evidence)),
        verdict("at most max_attempts (requeue)", too_often(evidence)),
        verdict("within threads", limits::exceeded(evidence)),
        verdict("locks hold", gates::locks(evidence)),
        verdict("after those that they come after", gates::order(evidence)),
        verdict("only after those that succeed", gates::successes(evidence)),
        verdict("a time makes one task", times::times(evidence)),
        verdict("what a service was told holds", services::ends(evidence)),
        verdict("no fields of a run are left", left_fields(evidence)),
    ]
}

fn lost(evidence: &Evidence<'_>) -> Vec<String> {
    let missing = evidence.submitted.iter().filter(|id| !evidence.tasks.contains_key(id));
    missing.map(|id| format!("task {id} is gone")).collect()
}

/// Repeated submissions must not make more tasks.
fn doubled(evidence: &Evidence<'_>) -> Vec<String> {
    let known: HashSet<&TaskId> = evidence.submitted.iter().collect();
    let more =
        evidence.tasks.iter().filter(|(id, task)| !known.contains(id) && !task.contains_key("schedule"));
    more.map(|(id, _)| format!("task {id} comes from a submission that was repeated")).collect()
}

fn not_ended(evidence: &Evidence<'_>) -> Vec<String> {
    let open =
        evidence.tasks.iter().filter(|(_, task)| [-7, -4, -2, -1, 0].contains(&Evidence::status(task)));
    open.map(|(id, task)| {
        let mut shown = task.clone();
        for field in ["stdout", "stderr", "params"] {
            shown.remove(field);
        }
        format!("task {id} is stuck: {shown}")
    })
    .collect()
}

fn successes_without_end(evidence: &Evidence<'_>) -> Vec<String> {
    let runs = records::by_task(&evidence.runs);
    let mut violations = Vec::new();
    for (id, task) in evidence.tasks.iter().filter(|(_, task)| Evidence::status(task) == 1) {
        let attempt = Evidence::attempt(task);
        let ended = runs.get(id).into_iter().flatten().any(|run| run.ended && run.attempt == attempt);
        if !ended {
            violations.push(format!("task {id} succeeded with attempt {attempt}, which no plugin ended"));
        }
    }
    violations
}

fn two_at_a_time(evidence: &Evidence<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for (id, runs) in records::by_task(&evidence.runs) {
        for (number, run) in runs.iter().enumerate() {
            for other in runs.iter().skip(number + 1).filter(|other| other.started < run.last) {
                let queue = evidence.queue_of(id).map(|queue| queue.name.clone()).unwrap_or_default();
                violations.push(format!("task {id} ({queue}): {}; {}", run.describe(), other.describe()));
            }
        }
    }
    violations
}

fn more_than_once(evidence: &Evidence<'_>) -> Vec<String> {
    started_more_often(evidence, false, 1)
}

fn too_often(evidence: &Evidence<'_>) -> Vec<String> {
    started_more_often(evidence, true, usize::try_from(MAX_ATTEMPTS).unwrap_or(usize::MAX))
}

fn started_more_often(evidence: &Evidence<'_>, requeues: bool, most: usize) -> Vec<String> {
    records::by_task(&evidence.runs)
        .into_iter()
        .filter(|(id, runs)| {
            runs.len() > most && evidence.queue_of(*id).is_some_and(|queue| queue.requeues == requeues)
        })
        .map(|(id, runs)| {
            let runs: Vec<String> = runs.iter().map(|run| run.describe()).collect();
            format!("task {id} was started {} times: {}", runs.len(), runs.join("; "))
        })
        .collect()
}

fn left_fields(evidence: &Evidence<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for (id, task) in &evidence.tasks {
        for field in ["slot", "lease_until", "instance", "pid", "gate", "holds_locks", "unsettled"] {
            if task.contains_key(field) {
                violations.push(format!("task {id} (status {}) has {field}", Evidence::status(task)));
            }
        }
    }
    violations
}

/// What is left on this machine when all DENs have ended.
pub fn left_processes(world: &World) -> Vec<String> {
    let left = processes::all(&world.folder);
    left.iter().map(|process| format!("process {}: {}", process.pid, process.line.join(" "))).collect()
}

/// Private folders of tasks that are still there.
pub fn left_folders(world: &World) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(world.folder.join("tmp"))? {
        left.push(entry?.path().display().to_string());
    }
    Ok(left)
}

/// Locks that somebody still holds or waits for.
pub async fn left_locks(world: &World) -> anyhow::Result<Vec<String>> {
    let locks = world.database.collection::<Document>("locks");
    let left: Vec<Document> = locks.find(Document::new()).await?.try_collect().await?;
    Ok(left.iter().map(|lock| format!("lock {lock}")).collect())
}

/// Whether schedules and locks know of all ends of tasks.
pub async fn all_is_told(world: &World) -> anyhow::Result<bool> {
    let untold = [doc! { "unsettled": true }, doc! { "holds_locks": true }].to_vec();
    Ok(world.tasks().count_documents(doc! { "$or": untold }).await? == 0)
}

/// Output of running tasks that is still there.
pub async fn left_live(world: &World) -> anyhow::Result<Vec<String>> {
    let live = world.database.collection::<Document>("tasks.live");
    let mut found = live.find(Document::new()).projection(doc! { "data": 0, "_id": 0 }).await?;
    let mut left = Vec::new();
    while let Some(chunk) = found.try_next().await? {
        let tasks = world.tasks();
        let task = tasks.find_one(doc! { "_id": chunk.get_object_id("task")? });
        let task = task.projection(doc! { "status": 1, "attempt": 1, "history": 1 }).await?;
        left.push(format!("{chunk} of task {}", task.unwrap_or_default()));
    }
    Ok(left)
}
