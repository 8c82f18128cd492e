//! `GET /assets/disbatch.css` and `/assets/live.js`

use actix_web::HttpResponse;
use actix_web::http::header::CACHE_CONTROL;

use crate::openapi::OfFixed;

/// The style sheet, part of the binary.
#[utoipa::path(
    get, path = "/assets/disbatch.css", tag = "service", operation_id = "styleSheet",
    responses(
        (status = 200, description = "CSS.", body = String, content_type = "text/css; charset=utf-8"),
        OfFixed,
    ),
)]
pub async fn handle() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "max-age=3600"))
        .content_type("text/css; charset=utf-8")
        .body(include_str!("../../assets/disbatch.css"))
}

/// The script of the page of a task that has not ended, part of the binary.
#[utoipa::path(
    get, path = "/assets/live.js", tag = "service", operation_id = "liveScript",
    responses(
        (
            status = 200, description = "JavaScript.", body = String,
            content_type = "text/javascript; charset=utf-8",
        ),
        OfFixed,
    ),
)]
pub async fn live() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "max-age=3600"))
        .content_type("text/javascript; charset=utf-8")
        .body(include_str!("../../assets/live.js"))
}
