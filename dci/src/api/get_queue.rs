//! `GET /queues/:queue`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::canary::probability;
use disbatch_core::model::{Canary, Queue};
use disbatch_core::series::Sides;
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
/// the next one where it allows none; and with a canary, `canary_now` is how attempts of both versions have ended since it began: `ended` and
/// `failed`, `others_ended` and `others_failed`, and `p`, how probable that is by chance alone. Browsers get a page.
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
        view.extend(tried(&state, &queue).await?);
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

/// How the canary of a queue does, if it has one.
async fn tried(state: &State, queue: &Queue) -> Result<Option<(String, Value)>, HttpError> {
    let Some(canary) = Canary::of(queue) else { return Ok(None) };
    let Sides { canary, others } = state.store.canary_sides(queue.id, &canary).await?;
    let now = json!({
        "ended": canary.ended, "failed": canary.failed,
        "others_ended": others.ended, "others_failed": others.failed, "p": probability(canary, others),
    });
    Ok(Some(("canary_now".to_owned(), now)))
}

/// The queue with this name or id.
pub async fn find(state: &State, named: &NamedQueue) -> Result<Queue, HttpError> {
    let queue = state.store.find_queue(&named.selector).await?;
    queue.ok_or_else(|| HttpError::not_found(format!("no queue '{}'", named.name)))
}
