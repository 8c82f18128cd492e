//! `GET /plugins`

use actix_web::HttpRequest;
use actix_web::web::Data;

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::OfRead;
use crate::state::State;
use crate::{accept, json, ui};

/// The names of the plugins that queues may be created with, those of workers among them. Browsers get a page that tells more
/// of them.
#[utoipa::path(
    get, path = "/plugins", tag = "queues", operation_id = "listPlugins",
    responses(
        (
            status = 200, description = "The names; a page if `Accept` asks for HTML.",
            content(
                (Vec<String> = "application/json", example = json!(["Disbatch::Plugin::Demo"])),
                (String = "text/html"),
            ),
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::plugins::render(&state, &who).await));
    }
    Ok(json::ok(&state.catalogue().await?.names().to_vec().into()))
}
