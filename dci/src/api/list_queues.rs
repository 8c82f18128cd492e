//! `GET /queues`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::accounts::Role;
use disbatch_core::model::Queue;
use disbatch_core::queue::Counts;
use disbatch_core::store::StoreError;
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::openapi::{self, Details, OfRead};
use crate::params::{Params, wants_details};
use crate::state::State;
use crate::{accept, fields, ui};

/// All queues that the client may see, with their tasks counted, in the order of the database. Numbers up to 10,000 are counted (up to 1,000 with
/// 20 queues and more); larger ones come from counters and may be a few seconds old. With the option `.details`, also what applies to its tasks.
/// Browsers get the overview.
#[utoipa::path(
    get, path = "/queues", tag = "queues", operation_id = "listQueues",
    params(Details),
    responses(
        (
            status = 200, content((Vec<openapi::Queue> = "application/json"), (String = "text/html")),
            description = "All queues; a page if `Accept` asks for HTML.",
        ),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::overview::render(&state, &who, &params.unwrap_or_default()).await));
    }
    programs(state, who, params).await
}

/// The answer for programs, whatever they accept.
pub async fn programs(state: Data<State>, who: Who, params: Result<Params, HttpError>) -> Answer {
    let (queues, details) = (counted(&state, &who).await?, wants_details(params));
    Ok(json::ok(&queues.iter().map(|(queue, counts)| view(queue, *counts, details)).collect()))
}

/// All queues that somebody may see, and how many tasks each has.
pub async fn counted(state: &State, who: &Who) -> Result<Vec<(Queue, Counts)>, StoreError> {
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    let ids = queues.iter().map(|queue| queue.id).collect();
    let counts = state.counts.of(&state.store, ids).await?;
    let with_counts = |queue: Queue| {
        let counts = counts.get(&queue.id).copied().unwrap_or_default();
        (queue, counts)
    };
    Ok(queues.into_iter().map(with_counts).collect())
}

/// A queue as clients see it.
pub fn view(queue: &Queue, counts: Counts, details: bool) -> Value {
    let as_stored =
        |value: Option<&bson::Bson>| value.map_or(Value::Null, |value| json::from_bson(value, Dates::Text));
    let mut view = json!({
        "id": queue.id.to_string(),
        "name": as_stored(queue.name.as_ref()),
        "plugin": as_stored(queue.plugin.as_ref()),
        "threads": as_stored(queue.threads.as_ref().map(|threads| &threads.0)),
        "queued": counts.queued,
        "running": counts.running,
        "completed": counts.completed,
    });
    if details && let Some(view) = view.as_object_mut() {
        view.extend(fields::of_queue(queue));
    }
    view
}
