//! `GET /healthz` and `GET /readyz`: whether this server is there, and whether the database answers it. For everybody, and nothing else is told.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_core::health;

use crate::openapi::OfAnybody;
use crate::state::State;

const PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Whether an address is one of these: who asks there knows this server by any name, its address for instance.
pub fn is_at(path: &str) -> bool {
    PATHS.contains(&path)
}

/// Whether this server is there. The database is not asked.
#[utoipa::path(
    get, path = "/healthz", tag = "service", operation_id = "getHealth",
    responses((status = 200, description = "It is: `ok`.", body = String, content_type = "text/plain"), OfAnybody),
)]
pub async fn alive() -> HttpResponse {
    plain(StatusCode::OK, health::ALIVE.to_owned())
}

/// Whether this server is ready: the database has answered it within the last 30 s. It is asked once a second at most, however many
/// want to know.
#[utoipa::path(
    get, path = "/readyz", tag = "service", operation_id = "getReadiness",
    responses(
        (status = 200, description = "It is: `ready`.", body = String, content_type = "text/plain"),
        (status = 503, description = "For how long the database has not answered.", body = String, content_type = "text/plain"),
        OfAnybody,
    ),
)]
pub async fn ready(state: Data<State>) -> HttpResponse {
    match state.looks.unready(&state.store).await {
        None => plain(StatusCode::OK, health::READY.to_owned()),
        Some(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> HttpResponse {
    HttpResponse::build(status).content_type("text/plain; charset=utf-8").body(text)
}
