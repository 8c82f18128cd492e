//! Tasks that come after others: when they run, when they are cancelled, and that nobody waits for ever, whoever dies and
//! whatever other programs do.

mod lost;
mod order;

use std::time::Duration;

use anyhow::{Context, bail};
use bson::{Bson, Document, doc};
use disbatch_core::model::{NodeName, QueueId, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::{Question, TaskOptions};
use disbatch_tests::{Script, World};

/// A plugin that does nothing.
pub const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\nexit 0\n" };

/// So often the gates are passed at most until nothing is left to be done.
const PASSES: usize = 200;

/// A world with a queue whose tasks nobody runs.
pub async fn world() -> anyhow::Result<(World, QueueId)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("P", doc! { "threads": 1 }).await?;
    Ok((world, queue))
}

fn after(parents: &[TaskId]) -> TaskOptions {
    TaskOptions { after: parents.to_vec(), ..TaskOptions::default() }
}

async fn submit(world: &World, queue: QueueId, options: &TaskOptions) -> anyhow::Result<TaskId> {
    let ids = world.store().submit_tasks(queue, vec![doc! {}], options).await?.ids;
    ids.first().copied().context("no task")
}

/// Does all that there is to do at the gates.
pub async fn pass(store: &Store) -> anyhow::Result<()> {
    for _ in 0..PASSES {
        if !store.pass_gates().await?.more {
            return Ok(());
        }
    }
    bail!("the gates are never done")
}

/// Ends a task as Perl Disbatch does: with a status and a time, and nothing else.
pub async fn end(world: &World, task: TaskId, status: i32) -> anyhow::Result<()> {
    world.set(task, doc! { "status": status, "mtime": world.store().now() }).await
}

/// The statuses of tasks, in their order.
pub async fn statuses(world: &World, tasks: &[TaskId]) -> anyhow::Result<Vec<i64>> {
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(world.status(*task).await?);
    }
    Ok(statuses)
}

fn ids_in(task: &Document, field: &str) -> Vec<TaskId> {
    let ids = task.get_array(field).map(Vec::as_slice).unwrap_or_default();
    ids.iter().filter_map(Bson::as_object_id).map(TaskId).collect()
}

fn last_note(task: &Document) -> String {
    let history = task.get_array("history").map(Vec::as_slice).unwrap_or_default();
    let last = history.last().and_then(Bson::as_document);
    last.and_then(|entry| entry.get_str("note").ok()).unwrap_or_default().to_owned()
}

/// Whether a DEN that looks around finds something to do at the gates.
pub async fn is_found(world: &World) -> anyhow::Result<bool> {
    let node = NodeName::new("n1");
    let question = Question::new(&node, Duration::from_secs(30));
    Ok(world.store().look_around(&question).await?.gates)
}
