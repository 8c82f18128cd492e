//! `GET /queues/:queue`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::model::Queue;
use serde_json::{Value, json};

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, list_queues};
use crate::error::HttpError;
use crate::json;
use crate::openapi::{self, Details, ErrorBody, OfRead};
use crate::params::{Params, wants_details};
use crate::state::State;
use crate::{accept, ui};

/// One queue with its tasks counted, by name or id. Numbers beyond 10,000 come from counters, as those of `GET /queues`.
/// With the option `.details` and a rate, `rate_now` is how many tasks it allows to start at once, and in how many seconds
/// the next one where it allows none. Browsers get a page.
#[utoipa::path(
    get, path = "/queues/{queue}", tag = "queues", operation_id = "getQueue",
    params(
        (
            "queue" = String, Path, example = "mail",
            description = "Its id if 24 hexadecimal digits, else its name.",
        ),
        Details,
    ),
    responses(
        (
            status = 200, content((openapi::Queue = "application/json"), (String = "text/html")),
            description = "The queue; a page if `Accept` asks for HTML.",
        ),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    named: NamedQueue,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::queue::render(&state, &who, &named, &params.unwrap_or_default()).await));
    }
    let (queue, details) = (find(&state, &named).await?, wants_details(params));
    let counts = state.counts.of(&state.store, vec![queue.id]).await?;
    let counts = counts.get(&queue.id).copied().unwrap_or_default();
    let mut view = list_queues::view(&queue, counts, details);
    if details && let Some(view) = view.as_object_mut() {
        view.extend(allowed(&state, &queue).await?);
    }
    Ok(json::ok(&view))
}

/// What the rate of a queue allows now, if it has one.
async fn allowed(state: &State, queue: &Queue) -> Result<Option<(String, Value)>, HttpError> {
    let standing = state.store.rate_standing(queue, None).await?;
    Ok(standing.map(|standing| {
        let next = standing.next.map(|next| next.as_secs_f64());
        ("rate_now".to_owned(), json!({ "allowed": standing.allowed, "next_in": next }))
    }))
}

/// The queue with this name or id.
pub async fn find(state: &State, named: &NamedQueue) -> Result<Queue, HttpError> {
    let queue = state.store.find_queue(&named.selector).await?;
    queue.ok_or_else(|| HttpError::not_found(format!("no queue '{}'", named.name)))
}
