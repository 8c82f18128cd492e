//! `GET /plugins`

use actix_web::HttpResponse;
use actix_web::web::Data;

use crate::json;
use crate::openapi::OfFixed;
use crate::state::State;

/// The names of the plugins that queues may be created with.
#[utoipa::path(
    get, path = "/plugins", tag = "queues", operation_id = "listPlugins",
    responses(
        (
            status = 200, description = "The names.", body = Vec<String>,
            example = json!(["Disbatch::Plugin::Demo"]),
        ),
        OfFixed,
    ),
)]
pub async fn handle(state: Data<State>) -> HttpResponse {
    json::ok(&state.plugins.clone().into())
}
