//! `GET /plugins`

use actix_web::HttpRequest;
use actix_web::web::Data;
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{Details, ListedPlugin, OfRead};
use crate::params::{Params, wants_details};
use crate::state::State;
use crate::{accept, json, ui};

/// The names of the plugins that queues may be created with, those of workers among them. With the option `.details` each is an object with
/// its `name` and the `versions` that are known of it. Browsers get a page that tells more of them.
#[utoipa::path(
    get, path = "/plugins", tag = "queues", operation_id = "listPlugins",
    params(Details),
    responses(
        (
            status = 200, description = "The names; a page if `Accept` asks for HTML.",
            content(
                (Vec<ListedPlugin> = "application/json", example = json!(["Disbatch::Plugin::Demo"])),
                (String = "text/html"),
            ),
        ),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::plugins::render(&state, &who).await));
    }
    let plugins = state.catalogue().await?;
    if !wants_details(params) {
        return Ok(json::ok(&plugins.names().to_vec().into()));
    }
    let detailed =
        |name: &String| json!({ "name": name, "versions": plugins.versions(name).collect::<Vec<_>>() });
    Ok(json::ok(&plugins.names().iter().map(detailed).collect()))
}
