//! `GET /plugins`

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::access::Who;
use crate::openapi::OfRead;
use crate::state::State;
use crate::{accept, json, ui};

/// The names of the plugins that queues may be created with. Browsers get a page that tells more of them.
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
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who) -> HttpResponse {
    if accept::wants_html(&request) {
        return ui::page(ui::plugins::render(&state, &who).await);
    }
    json::ok(&state.plugins.clone().into())
}
