//! `GET /queues/:queue/recordings`

use actix_web::web::Data;
use bson::DateTime;
use disbatch_core::recordings;
use disbatch_wire::bundles::RecordedAttempt;

use crate::access::NamedQueue;
use crate::api::{Answer, queues};
use crate::error::HttpError;
use crate::json;
use crate::openapi::{ErrorBody, OfRead, RecordingSearch};
use crate::params::Params;
use crate::state::State;

/// So many are answered unless somebody wants another number.
const DEFAULT_LIMIT: i64 = 100;

/// So many are answered at most.
const MOST: i64 = 1_000;

/// The attempts of a queue that were recorded, the latest first. `GET /tasks/{id}/bundle` with `.attempt` has what is known of each.
#[utoipa::path(
    get, path = "/queues/{queue}/recordings", tag = "queues", operation_id = "listRecordings",
    params(
        (
            "queue" = String, Path, example = "mail",
            description = "Its id if 24 hexadecimal digits, else its name.",
        ),
        RecordingSearch,
    ),
    responses(
        (status = 200, description = "The attempts; none if nothing is recorded.", body = Vec<RecordedAttempt>),
        (status = 400, description = "The option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, named: NamedQueue, params: Params) -> Answer {
    let limit = limit(&params)?;
    let queue = queues::find(&state, &named).await?;
    let found = state.store.list_recordings(queue.id, limit).await?;
    json::of(&found.iter().map(view).collect::<Vec<_>>())
}

fn limit(params: &Params) -> Result<i64, HttpError> {
    let limit = params.integer("limit")?.unwrap_or(DEFAULT_LIMIT);
    let fits = (1..=MOST).contains(&limit).then_some(limit);
    fits.ok_or_else(|| HttpError::bad_request(format!("'.limit' must be an integer from 1 to {MOST}")))
}

fn view(found: &recordings::RecordedAttempt) -> RecordedAttempt {
    let text = |time: DateTime| time.try_to_rfc3339_string().unwrap_or_default();
    RecordedAttempt {
        task: found.task.to_string(),
        attempt: found.attempt,
        at: text(found.at),
        expires: text(found.expires),
    }
}
