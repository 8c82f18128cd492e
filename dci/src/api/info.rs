//! `GET /info`

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::Data;
use serde_json::json;

use crate::json;
use crate::openapi::OfFixed;
use crate::state::{Extension, State};
use crate::ui::VERSION;

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
pub async fn handle(state: Data<State>) -> HttpResponse {
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
