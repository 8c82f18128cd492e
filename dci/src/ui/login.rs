//! `GET /login`, `POST /login` and `POST /logout`: how people say who they are, and that they leave.

use actix_web::http::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use disbatch_core::accounts::UserName;
use disbatch_wire::accounts::Credentials;
use serde_json::{Value, json};

use crate::access::{Via, Who, address, session};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, OfAnybody};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::{accept, access, changes, json, measure, ui};

/// Where a login leads if nothing else is asked for.
const HOME: &str = "/";

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    /// Who it is, if that is known: by name, or anybody where nobody is asked who they are.
    known: Option<Option<String>>,
    /// What was typed as the name. What was typed as the password is not kept.
    name: &'a str,
    /// Where the login leads.
    next: &'a str,
    message: Option<&'a str>,
}

/// The page to log in. Whoever is known already is told so.
#[utoipa::path(
    get, path = "/login", tag = "accounts", operation_id = "showLogin",
    params(("then" = Option<String>, Query, description = "The address on this server that is next.")),
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html"),
        (status = 503, description = "The database cannot be reached."),
        OfAnybody,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, Lenient(params): Lenient) -> HttpResponse {
    let next = own(params.fields.get("then"));
    let page = |who: Option<Who>| {
        ui::render(&LoginPage { known: who.map(|who| who.name), name: "", next, message: None })
    };
    let mut response = ui::page(access::identify(&request, &state).await.and_then(page));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Begins a session for whoever knows the password of a user: the cookie of the answer is its key. Programs had better send
/// the password, or a token, with each request.
#[utoipa::path(
    post, path = "/login", tag = "accounts", operation_id = "logIn",
    request_body(content = Credentials, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Logged in; the cookie is the session's.", body = Value, example = json!({"name": "alice"})),
        (status = 303, description = "The same; the address of `.then` is next."),
        (status = 400, description = "The name or the password is missing."),
        (status = 401, description = "The name or the password is wrong."),
        (status = 403, description = "A browser says that a page of another site makes the request."),
        (status = 413, description = "The body is longer than 64 KiB."),
        (status = 429, description = "There were too many wrong passwords; `Retry-After` tells when the next may be tried."),
        (status = 503, description = "The database cannot be reached."),
        OfAnybody,
    ),
)]
pub async fn log_in(request: HttpRequest, state: Data<State>, params: Params) -> Answer {
    let begun = begin(&request, &state, &params).await;
    if let Err(error) = &begun {
        measure::not_let_in(state.store.metrics(), error.status(), true);
    }
    match begun {
        Err(error) if redirect::is_form(&params) => Ok(refused(&error, &params)),
        other => other,
    }
}

/// Ends the session, and leads to the page to log in. Whoever has no session is only led there.
#[utoipa::path(
    post, path = "/logout", tag = "accounts", operation_id = "logOut",
    responses((status = 303, description = "Ended; the page to log in is next.")),
)]
pub async fn log_out(request: HttpRequest, state: Data<State>, who: Who) -> Answer {
    redirect::or_page(accept::wants_html(&request), end(&request, &state, &who).await)
}

async fn begin(request: &HttpRequest, state: &State, params: &Params) -> Answer {
    if !request.query_string().is_empty() {
        return Err(HttpError::bad_request("a password is sent in the body: addresses are kept in logs"));
    }
    let Credentials { name, password } = params.known()?;
    let (name, password) = (text(name, "name")?, text(password, "password")?);
    let wrong = || HttpError::unauthorized("wrong name or password");
    // What cannot be anybody's name is not remembered as one that was tried.
    name.parse::<UserName>().map_err(|_| wrong())?;
    let (cookie, name) = access::log_in(request, state, &name, &password).await?.ok_or_else(wrong)?;
    if redirect::is_form(params) {
        let next = own(params.options.get("then"));
        return Ok(HttpResponse::SeeOther().cookie(cookie).insert_header((LOCATION, next)).finish());
    }
    let body = json::compact(&json!({ "name": name }));
    Ok(HttpResponse::Ok().cookie(cookie).content_type(json::CONTENT_TYPE).body(body))
}

async fn end(request: &HttpRequest, state: &State, who: &Who) -> Answer {
    if let Via::Session(key) = &who.via {
        changes::log_out(state, who, key).await?;
    }
    let encrypted = address::is_encrypted(request, state.access.proxy.as_ref());
    let mut response = HttpResponse::SeeOther();
    response.cookie(session::no_cookie(encrypted)).insert_header((LOCATION, "/login"));
    // Nor is the next who uses the browser to find what it has kept.
    Ok(response.insert_header(("clear-site-data", "\"cache\"")).finish())
}

fn refused(error: &HttpError, params: &Params) -> HttpResponse {
    let name = params.known::<Credentials>().and_then(|given| text(given.name, "name")).unwrap_or_default();
    let page = LoginPage {
        known: None,
        name: &name,
        next: own(params.options.get("then")),
        message: Some(error.message()),
    };
    ui::refusal(error, ui::render_with(error.status(), &page))
}

/// The address of this server that is next.
fn own(next: Option<&Value>) -> &str {
    next.and_then(Value::as_str).filter(|path| redirect::is_own(path)).unwrap_or(HOME)
}

fn text(given: Option<Value>, name: &str) -> Result<String, HttpError> {
    match given {
        Some(Value::String(text)) => Ok(text),
        _ => Err(HttpError::bad_param("name and password must be given as text", name)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actix_web::http::header::RETRY_AFTER;

    use super::*;

    const FORM: &str = "application/x-www-form-urlencoded";

    fn html(known: Option<Option<String>>, name: &str, message: Option<&str>) -> String {
        LoginPage { known, name, next: "/tasks?queue=<x>", message }.render().unwrap()
    }

    #[test]
    fn the_page_asks_for_a_name_and_a_password_and_leads_on() {
        let html = html(None, "<b>\"alice\"", Some("wrong <i>name</i>"));
        for part in [
            "action=\"/login\" method=\"post\"",
            "name=\".then\" value=\"/tasks?queue=&#60;x&#62;\"",
            "value=\"&#60;b&#62;&#34;alice&#34;\"",
            "autocomplete=\"current-password\"",
            "wrong &#60;i&#62;name&#60;/i&#62;",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("<nav"), "{html}");
    }

    #[test]
    fn who_is_known_is_not_asked() {
        let known = html(Some(Some("<alice>".into())), "", None);
        assert!(known.contains("You are logged in as") && known.contains("&#60;alice&#62;"), "{known}");
        let open = html(Some(None), "", None);
        assert!(open.contains("Nobody is asked"), "{open}");
        for html in [known, open] {
            assert!(
                !html.contains("type=\"password\"") && html.contains("href=\"/tasks?queue=&#60;x&#62;\""),
                "{html}"
            );
        }
    }

    #[test]
    fn a_refusal_keeps_the_name_and_not_the_password() {
        let body = b"name=%3Calice%3E&password=open+sesame&.then=%2F%2Fevil.example";
        let params = Params::read(FORM, body, "").unwrap();
        let Credentials { name, password } = params.known().unwrap();
        let (name, password) = (text(name, "name").unwrap(), text(password, "password").unwrap());
        assert_eq!((name.as_str(), password.as_str()), ("<alice>", "open sesame"));
        let response = refused(&HttpError::too_many_attempts(Duration::from_secs(3)), &params);
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers().get(RETRY_AFTER).unwrap(), "3");
        let page =
            LoginPage { known: None, name: &name, next: own(params.options.get("then")), message: None };
        let html = page.render().unwrap();
        assert!(html.contains("value=\"&#60;alice&#62;\"") && !html.contains("sesame"), "{html}");
        assert!(!html.contains("evil"), "it would lead to another server: {html}");
    }

    #[test]
    fn name_and_password_are_text() {
        let of = |body: &[u8]| {
            let params = Params::read("application/json", body, "").unwrap();
            let given: Credentials = params.known().unwrap();
            text(given.name, "name").map_err(|error| error.status().as_u16())
        };
        assert_eq!(of(br#"{"name": "alice"}"#), Ok("alice".to_owned()));
        for wrong in [br#"{}"#.as_slice(), br#"{"name": 5}"#, br#"{"name": ["alice"]}"#, br#"{"name": null}"#]
        {
            assert_eq!(of(wrong), Err(400));
        }
    }
}
