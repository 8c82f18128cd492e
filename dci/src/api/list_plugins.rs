//! `GET /plugins`

use actix_web::HttpResponse;
use actix_web::web::Data;

use crate::json;
use crate::state::State;

/// The names of the plugins that queues may be created with.
pub async fn handle(state: Data<State>) -> HttpResponse {
    json::ok(&state.plugins.clone().into())
}
