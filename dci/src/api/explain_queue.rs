//! `GET /queues/:queue/explain`

use actix_web::web::Data;
use disbatch_core::accounts::Role;
use disbatch_core::explain::{Head, Holding, Reader, hold};
use disbatch_core::model::Queue;
use disbatch_core::store::StoreError;
use disbatch_wire::explanations::{NodeChance, QueueExplanation};

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, get_queue};
use crate::json;
use crate::openapi::{ErrorBody, OfRead};
use crate::state::State;

/// Why a queue does not move: what holds its first task that waits, in a word and in a sentence. What nodes are called is for those who may look at
/// all queues.
#[utoipa::path(
    get, path = "/queues/{queue}/explain", tag = "queues", operation_id = "explainQueue",
    params((
        "queue" = String, Path, example = "mail",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    responses(
        (status = 200, description = "What holds it.", body = QueueExplanation),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue) -> Answer {
    let queue = get_queue::find(&state, &named).await?;
    let head = state.store.head_of_queue(&queue).await?;
    let running = running(&state, &queue, &head).await?;
    let holding = hold(&queue, &head, Reader::of(&who.reach(Role::Viewer)));
    json::of(&view(&queue, running, holding))
}

/// How many tasks of the queue are claimed or running.
async fn running(state: &State, queue: &Queue, head: &Head) -> Result<u64, StoreError> {
    if let Head::Task(facts) = head {
        return Ok(facts.shares.iter().map(|share| share.tasks).sum());
    }
    let under_way = state.store.tasks_under_way(&[queue.id]).await?;
    Ok(under_way.get(&queue.id).map_or(0, |counts| counts.claimed + counts.running))
}

fn view(queue: &Queue, running: u64, holding: Holding) -> QueueExplanation {
    let Holding { gate, text, head, next, nodes } = holding;
    let chance = |chance: disbatch_core::explain::Chance| NodeChance {
        node: chance.node,
        able: chance.against.is_empty(),
        why: chance.against,
    };
    QueueExplanation {
        id: queue.id.to_string(),
        name: queue.display_name(),
        gate: gate.word().to_owned(),
        summary: text,
        head: head.map(|id| id.to_string()),
        running,
        threads: queue.thread_limit(),
        next: next.and_then(|next| next.try_to_rfc3339_string().ok()),
        nodes: nodes.map(|nodes| nodes.into_iter().map(chance).collect()),
    }
}
