//! What those get who may not.

use actix_web::http::Method;
use actix_web::http::header::{ACCEPT, COOKIE, LOCATION, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};

use crate::error::HttpError;
use crate::{accept, ui};

/// What clients are asked for, as Disbatch's have it.
const CHALLENGE: &str = "Basic realm=\"disbatch\", charset=\"UTF-8\"";

/// For somebody who is not known: the page to log in for a browser, 401 for all others.
pub fn unknown(request: &HttpRequest) -> HttpResponse {
    if accept::wants_html(request) {
        if *request.method() == Method::GET {
            let way = format!("/login?then={}", ui::bulk::encoded(here(request)));
            return HttpResponse::SeeOther().insert_header((LOCATION, way)).finish();
        }
        return ui::page(Err(HttpError::unauthorized(
            "you are not logged in any more: log in and try again",
        )));
    }
    let mut response = HttpError::unauthorized("this needs a login").response();
    if !is_page(request) {
        response.insert_header((WWW_AUTHENTICATE, CHALLENGE));
    }
    let error = HttpError::unauthorized("this needs a login");
    response.content_type(crate::json::CONTENT_TYPE).body(error.json())
}

/// For somebody who may not, or whom something else has gone wrong with.
pub fn error(request: &HttpRequest, error: HttpError) -> HttpResponse {
    if accept::wants_html(request) {
        let is_read = *request.method() == Method::GET;
        let what = if is_read { "see this page" } else { "do this" };
        let needs = error.needs();
        let error = needs.map_or(error, |role| HttpError::forbidden(format!("Only {role}s can {what}.")));
        return if is_read { ui::page(Err(error)) } else { ui::failed(&error) };
    }
    error.response().content_type(crate::json::CONTENT_TYPE).body(error.json())
}

/// The address that was asked for.
fn here(request: &HttpRequest) -> &str {
    request.uri().path_and_query().map_or("/", |address| address.as_str())
}

/// Whether a script of a page asks. The browser would ask for a password by itself, in a window of its own.
fn is_page(request: &HttpRequest) -> bool {
    let has = |name: &str| request.headers().contains_key(name);
    let streams = request.headers().get(ACCEPT).is_some_and(|accept| accept == "text/event-stream");
    streams || has(COOKIE.as_str()) || has("sec-fetch-mode") || has("hx-request")
}
