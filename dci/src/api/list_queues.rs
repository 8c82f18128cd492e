//! `GET /queues`

use actix_web::web::Data;
use disbatch_core::model::Queue;
use disbatch_core::queue::Counts;
use disbatch_core::store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::api::Answer;
use crate::json::{self, Dates};
use crate::openapi::{self, OfRead};
use crate::state::State;

/// How many queues are counted at once. Each takes three connections for a moment.
const COUNTED_AT_ONCE: usize = 4;

/// All queues with their tasks counted, in the order of the database.
///
/// # Errors
/// The database cannot be reached.
#[utoipa::path(
    get, path = "/queues", tag = "queues", operation_id = "listQueues",
    responses((status = 200, description = "All queues.", body = Vec<openapi::Queue>), OfRead),
)]
pub async fn handle(state: Data<State>) -> Answer {
    let queues = counted(&state.store).await?;
    Ok(json::ok(&queues.iter().map(|(queue, counts)| view(queue, *counts)).collect()))
}

/// All queues and how many tasks each has.
///
/// # Errors
/// The database cannot be reached.
pub async fn counted(store: &Store) -> Result<Vec<(Queue, Counts)>, StoreError> {
    let count = async |queue: Queue| Ok((store.count_queue(queue.id).await?, queue));
    futures::stream::iter(store.list_queues().await?)
        .map(count)
        .buffered(COUNTED_AT_ONCE)
        .map_ok(|(counts, queue)| (queue, counts))
        .try_collect()
        .await
}

/// A queue as clients see it.
pub fn view(queue: &Queue, counts: Counts) -> Value {
    let as_stored =
        |value: Option<&bson::Bson>| value.map_or(Value::Null, |value| json::from_bson(value, Dates::Text));
    json!({
        "id": queue.id.to_string(),
        "name": as_stored(queue.name.as_ref()),
        "plugin": as_stored(queue.plugin.as_ref()),
        "threads": as_stored(queue.threads.as_ref().map(|threads| &threads.0)),
        "queued": counts.queued,
        "running": counts.running,
        "completed": counts.completed,
    })
}
