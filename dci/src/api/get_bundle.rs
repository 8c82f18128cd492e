//! `GET /tasks/:id/bundle`

use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::Answer;
use crate::bundle;
use crate::openapi::{BundleOptions, ErrorBody, OfSearch};
use crate::params::Params;
use crate::state::State;

/// All that is known of an attempt that is over, to run it again elsewhere: a tar archive with `bundle.json`, `stdin.json`, `recording.json` if the
/// attempt was recorded, `stdout` and `stderr`. The schemas of the JSON files are in `contract/bundle.schema.json`. What is secret is not in it.
#[utoipa::path(
    get, path = "/tasks/{id}/bundle", tag = "tasks", operation_id = "getBundle",
    params(("id" = String, Path, description = "The task's id."), BundleOptions),
    responses(
        (status = 200, content((String = "application/x-tar")), description = "The archive."),
        (status = 400, description = "The option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such task, or no such attempt.", body = ErrorBody),
        (status = 409, description = "The attempt is not over.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let _turn = state.budget.answers.turn().await?;
    bundle::respond(&state, &who, &id, params.integer("attempt")?).await
}
