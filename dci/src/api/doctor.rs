//! `GET /doctor`

use actix_web::web::Data;
use disbatch_wire::doctor::Diagnosis;

use crate::api::Answer;
use crate::openapi::OfRead;
use crate::state::State;
use crate::{doctor, json};

/// Checks whether all is well: the database and this server's rights in it, indexes, disk, clocks, nodes and their releases, plugins, queues that no
/// node serves, schedules that are late, users. Each finding says what to do. Nothing reads tasks, so it may be asked at any time.
#[utoipa::path(
    get, path = "/doctor", tag = "service", operation_id = "diagnose",
    responses((status = 200, description = "What was found.", body = Diagnosis), OfRead),
)]
pub async fn handle(state: Data<State>) -> Answer {
    json::of(&doctor::diagnose(&state).await?)
}
