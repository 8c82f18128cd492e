//! `GET /queues/:queue`

use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;

use crate::api::{Answer, list_queues};
use crate::error::HttpError;
use crate::json;
use crate::openapi::{self, Details, ErrorBody, OfRead};
use crate::params::{Params, wants_details};
use crate::state::State;

/// One queue with its tasks counted, by name or id. Numbers beyond 10,000 come from counters, as those of `GET /queues`.
///
/// # Errors
/// There is none, or the database cannot be reached.
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
        (status = 200, description = "The queue.", body = openapi::Queue),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, name: Path<String>, params: Result<Params, HttpError>) -> Answer {
    let queue = state.store.find_queue(&Selector::parse(&name)).await?;
    let queue = queue.ok_or_else(|| HttpError::not_found(format!("no queue '{name}'")))?;
    let counts = state.counts.of(&state.store, vec![queue.id]).await?;
    let counts = counts.get(&queue.id).copied().unwrap_or_default();
    Ok(json::ok(&list_queues::view(&queue, counts, wants_details(params))))
}
