//! Why a queue does not move, and why a task does not run; the locks that tasks hold, and what tasks come after.

use actix_web::web::{Data, Path};
use bson::doc;
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::explain::{Explanation, Head, Holding, Reader, explain, hold, unreadable};
use disbatch_core::gates::Waits;
use disbatch_core::model::{Queue, Status, TaskId};
use disbatch_core::store::StoreError;
use disbatch_wire::explanations::{Explained, QueueExplanation};
use disbatch_wire::locks::{GraphExtent, Lock, LockDetails, LockSearch, TaskGraph};

use crate::access::{NamedQueue, Sight, Who};
use crate::api::{Answer, queues, task_actions};
use crate::error::HttpError;
use crate::openapi::JSON_OR_PAGE;
use crate::params::Params;
use crate::state::State;
use crate::{gates, json};

/// Why a queue does not move: what holds its first task that waits, in a word and in a sentence. What nodes are called is for those who may look at
/// all queues.
#[utoipa::path(
    get, path = "/queues/{queue}/explain", tag = "queues", operation_id = "explainQueue",
    responses((status = 200, description = "What holds it.", body = QueueExplanation)),
)]
pub async fn queue(state: Data<State>, who: Who, named: NamedQueue) -> Answer {
    let queue = queues::find(&state, &named).await?;
    let head = state.store.head_of_queue(&queue).await?;
    let running = running(&state, &queue, &head).await?;
    let reader = Reader::of(&who.reach(Role::Viewer));
    let Holding { gate, text, head, next, nodes } = hold(&queue, &head, reader);
    json::of(&QueueExplanation {
        id: queue.id.to_string(),
        name: queue.display_name(),
        gate: gate.as_str().to_owned(),
        summary: text,
        head: head.map(|id| id.to_string()),
        running,
        threads: queue.thread_limit(),
        next: next.and_then(|next| next.try_to_rfc3339_string().ok()),
        nodes,
    })
}

async fn running(state: &State, queue: &Queue, head: &Head) -> Result<u64, StoreError> {
    if let Head::Task(facts) = head {
        return Ok(facts.shares.iter().map(|share| share.tasks).sum());
    }
    let under_way = state.store.tasks_under_way(&[queue.id]).await?;
    Ok(under_way.get(&queue.id).map_or(0, |counts| counts.claimed + counts.running))
}

/// Why a task does not run, how it runs, or how it ended, in sentences for people: what it has to pass, and whether
/// it may.
#[utoipa::path(
    get, path = "/tasks/{id}/explain", tag = "tasks", operation_id = "explainTask",
    responses((status = 200, description = "What it waits for.", body = Explained)),
)]
pub async fn task(state: Data<State>, who: Who, id: Path<String>) -> Answer {
    let Explanation { status, summary, gates, .. } = find(&state, &id, &who.reach(Role::Viewer)).await?;
    let word = status.word().to_owned();
    json::of(&Explained { id: id.into_inner(), status: status.code(), word, summary, gates })
}

pub async fn find(state: &State, id: &str, reach: &Reach) -> Result<Explanation, HttpError> {
    let task = task_actions::task_id(id)?;
    let facts = match state.store.facts_of_task(task).await {
        Err(error) if error.is_about_one() => return cannot_be_read(state, (id, task), &error).await,
        facts => facts?,
    };
    let mut facts = facts.ok_or_else(|| task_actions::not_found(id))?;
    if facts.waits != Waits::default() {
        let sight = Sight::of(&state.store, reach).await?;
        facts.waits.conceal(|queue| sight.sees(queue));
    }
    Ok(explain(&facts, Reader::of(reach)))
}

/// What is to be said of a task that cannot be read. That it is there can be told all the same.
async fn cannot_be_read(
    state: &State,
    (id, task): (&str, TaskId),
    error: &StoreError,
) -> Result<Explanation, HttpError> {
    let found = state.store.find_task_fields(task, doc! { "status": 1 }).await?;
    let found = found.ok_or_else(|| task_actions::not_found(id))?;
    let status = Status::stored(&found).unwrap_or(Status::Other(i64::MIN));
    let aside = state.store.find_aside(task).await?;
    Ok(unreadable(status, &error.to_string(), aside.as_ref()))
}

/// The locks that tasks hold or wait for, in the order of their names, with the first of those who hold them. Who may see
/// some queues only sees locks of their tasks, and of other tasks that there are some.
#[utoipa::path(
    get, path = "/locks", tag = "locks", operation_id = "listLocks",
    params(LockSearch),
    responses(
        (status = 200, description = "The locks; a page if `Accept` asks for HTML.", body = Vec<Lock>, content_type = JSON_OR_PAGE),
        (status = 400, description = "An option is wrong."),
    ),
)]
pub async fn locks(state: Data<State>, who: Who, params: Params) -> Answer {
    let sight = gates::sight(&state, &who).await?;
    let locks = gates::locks(&state, &sight, &gates::filter(&params)?).await?;
    json::of(&locks.iter().map(gates::of_row).collect::<Vec<_>>())
}

/// A lock: who holds it, and the first 100 of those who wait for it, in the order in which they get it. A task of a queue that
/// the client may not see has no id, and says `hidden`.
#[utoipa::path(
    get, path = "/locks/{name}", tag = "locks", operation_id = "getLock",
    responses(
        (status = 200, description = "The lock; a page if `Accept` asks for HTML.", body = LockDetails, content_type = JSON_OR_PAGE),
        (status = 404, description = "Nobody holds it or waits for it whose tasks the client may see.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn lock(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    let sight = gates::sight(&state, &who).await?;
    json::of(&gates::of_details(&gates::lock(&state, &sight, &name).await?))
}

/// The tasks that a task comes after and those that come after it, and so on: a graph, as nodes and edges. A task of a queue
/// that the client may not see has no id, and says `hidden`.
#[utoipa::path(
    get, path = "/tasks/{id}/graph", tag = "tasks", operation_id = "getTaskGraph",
    params(GraphExtent),
    responses(
        (status = 200, description = "The graph.", body = TaskGraph),
        (status = 400, description = "An option is wrong."),
    ),
)]
pub async fn graph(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let task = task_actions::task_id(&id)?;
    let (depth, most) = gates::extent(&params)?;
    let graph = state.store.neighbours(task, depth, most).await?;
    if graph.tasks.is_empty() {
        return Err(task_actions::not_found(&id));
    }
    let sight = gates::sight(&state, &who).await?;
    json::of(&gates::of_graph(&graph, &sight))
}
