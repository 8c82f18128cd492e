//! `GET /queue-prototypes-json`

use actix_web::web::Data;
use serde_json::{Map, Value};

use crate::api::Answer;
use crate::json;
use crate::openapi::OfRead;
use crate::state::State;

/// The names of the plugins that queues may be created with, as keys and as values.
#[utoipa::path(
    get, path = "/queue-prototypes-json", tag = "Disbatch::Web::V3", operation_id = "queuePrototypesJson",
    responses((status = 200, description = "The names.", body = Value), OfRead),
)]
pub async fn handle(state: Data<State>) -> Answer {
    let catalogue = state.catalogue().await?;
    let plugins = catalogue.names().iter().map(|plugin| (plugin.clone(), Value::from(plugin.as_str())));
    Ok(json::ok(&Value::Object(plugins.collect::<Map<_, _>>())))
}
