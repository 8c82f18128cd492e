//! What this server has: its routes, plugins and metrics.

use actix_web::http::header::{ACCEPT, HeaderName, HeaderValue};
use actix_web::web::{self, Data};
use actix_web::{HttpRequest, HttpResponse};
use disbatch_core::metrics::{Component, Format};
use disbatch_wire::definitions::{DetailedPlugin, ListedPlugin};
use serde_json::json;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{Details, OfFixed, OfRead};
use crate::params::{Params, wants_details};
use crate::state::{Extension, State};
use crate::ui::VERSION;
use crate::{accept, json, ui};

/// The routes that are always there, in the notation of Perl Disbatch, which clients may look for.
const GET: [&str; 11] = [
    "/",
    "/info",
    "/nodes",
    "(?^u:^/nodes/(?<node>.+))",
    "/plugins",
    "/queues",
    "(?^u:^/queues/(?<queue>.+)$)",
    "/tasks",
    "(?^u:^/tasks/(?<id>[0-9a-f]{24})$)",
    "/balance",
    "/monitoring",
];
const POST: [&str; 5] =
    ["(?^u:^/nodes/(?<node>.+))", "/queues", "(?^u:^/queues/(?<queue>.+)$)", "/tasks", "/balance"];
const DELETE: [&str; 1] = ["(?^u:^/queues/(?<queue>.+)$)"];

/// The name of the database, the routes, and which extensions add to them.
#[utoipa::path(
    get, path = "/info", tag = "service", operation_id = "showInfo",
    responses(
        (status = 200, description = "The routes are in the notation of Perl Disbatch. The header `Disbatch-Version` is the version of this server.", body = Value),
        OfFixed,
    ),
)]
pub async fn info(state: Data<State>) -> HttpResponse {
    let mut get = GET.to_vec();
    let mut post = POST.to_vec();
    for extension in &state.extensions {
        match extension {
            Extension::Tasks => post
                .extend(["(?^u:^/tasks/(?<queue>[^/]+)$)", "(?^u:^/tasks/(?<queue>.+?)/(?<collection>.+)$)"]),
            Extension::V3 => {
                get.extend(["/scheduler-json", "/queue-prototypes-json"]);
                post.extend([
                    "/set-queue-attr-json",
                    "/start-queue-json",
                    "/delete-queue-json",
                    "/queue-create-tasks-json",
                    "/queue-create-tasks-from-query-json",
                    "/search-tasks-json",
                ]);
            }
        }
    }
    get.push("(?^u:^/)"); // Static files.
    let mut extensions: Vec<&str> = state.extensions.iter().map(|extension| extension.name()).collect();
    extensions.sort_unstable();
    let mut response = json::ok(&json!({
        "database": state.store.database_name(),
        "routes": { "DELETE": DELETE, "GET": get, "POST": post },
        "web_extensions": extensions,
    }));
    // Not in the body, which is that of Perl Disbatch.
    response
        .headers_mut()
        .insert(HeaderName::from_static("disbatch-version"), HeaderValue::from_static(VERSION));
    response
}

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
pub async fn plugins(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::plugins::render(&state, &who).await));
    }
    let plugins = state.catalogue().await?;
    let details = wants_details(params);
    let listed = |name: &String| {
        if !details {
            return ListedPlugin::Name(name.clone());
        }
        let versions = plugins.versions(name).map(str::to_owned).collect();
        ListedPlugin::Detailed(DetailedPlugin { name: name.clone(), versions })
    };
    json::of(&plugins.names().iter().map(listed).collect::<Vec<_>>())
}

/// The metrics of this server and of all queues, for Prometheus: in its format, or in that of OpenMetrics if `Accept` names
/// `application/openmetrics-text`. `docs/metrics.md` has all of them. What comes from the database is some seconds old at most,
/// unless there is much of it; what cannot be found out is missing.
#[utoipa::path(
    get, path = "/metrics", tag = "service", operation_id = "getMetrics",
    responses(
        (
            status = 200, content((String = "text/plain"), (String = "application/openmetrics-text")),
            description = "The metrics.",
        ),
        OfRead,
    ),
)]
pub async fn metrics(request: HttpRequest, state: Data<State>) -> Answer {
    state.gathered.renew(&state.store).await;
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::of_accept(accept);
    let metrics = state.store.metrics().clone();
    // Of many queues it is a long text.
    let text = web::block(move || metrics.text(Component::Dci, format)).await;
    let text = text.map_err(|error| HttpError::internal(&format!("metrics cannot be written: {error}")))?;
    Ok(HttpResponse::Ok().content_type(format.content_type()).body(text))
}
