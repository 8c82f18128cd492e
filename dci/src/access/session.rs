//! Sessions of browsers: their cookie, how they begin, and what shows that a change was asked for by a page of the session itself, and
//! not by a page of someone else's.

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::dev::{Payload, ServiceRequest};
use actix_web::http::header::USER_AGENT;
use actix_web::web;
use disbatch_core::accounts::Key;
use futures::{future, stream};

use super::address;
use crate::error::HttpError;
use crate::params::{media_type, read_body};
use crate::state::State;
use crate::{allowance, changes};

/// Its name where it is only ever sent over TLS: browsers accept it from this host alone, for all paths.
const OVER_TLS: &str = "__Host-disbatch";

const PLAIN: &str = "disbatch";

fn cookie_name(encrypted: bool) -> &'static str {
    if encrypted { OVER_TLS } else { PLAIN }
}

pub fn key(request: &HttpRequest, encrypted: bool) -> Option<Key> {
    request.cookie(cookie_name(encrypted)).and_then(|cookie| Key::parse(cookie.value()))
}

/// What takes it away.
pub fn no_cookie(encrypted: bool) -> Cookie<'static> {
    let mut cookie = cookie(String::new(), encrypted);
    cookie.make_removal();
    cookie
}

/// What gives a browser its key, until it is closed or the session ends.
fn cookie(value: String, encrypted: bool) -> Cookie<'static> {
    Cookie::build(cookie_name(encrypted), value)
        .path("/")
        .http_only(true)
        .secure(encrypted)
        .same_site(SameSite::Lax)
        .finish()
}

/// No more of what a browser calls itself is kept, in characters.
const LONGEST_AGENT: usize = 200;

/// The cookie for the browser, and the name as it is stored. `None`: there is no such user, or it is not their password.
pub async fn log_in(
    request: &HttpRequest,
    state: &State,
    name: &str,
    password: &str,
) -> Result<Option<(Cookie<'static>, String)>, HttpError> {
    let access = &state.access;
    let proxy = access.proxy.as_ref();
    let from = address::of(request, proxy);
    let Some(user) = access.passwords.user(state, name, password, from).await? else {
        return Ok(None);
    };
    let agent = request.headers().get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let agent: String = agent.unwrap_or_default().chars().take(LONGEST_AGENT).collect();
    let from = address::text(request, proxy);
    let key = changes::begin_session(state, &user, from, agent).await?;
    let cookie = cookie(key.text(), address::is_encrypted(request, proxy));
    Ok(Some((cookie, user.name.to_string())))
}

/// The first field of every form.
pub const FORM_FIELD: &str = ".form_token";

/// Where scripts put the same.
const FORM_HEADER: &str = "x-disbatch-form-token";

const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// Sees to it that a request of a session has the session's form token, and takes it out of the form.
pub async fn check_form(request: &mut ServiceRequest, key: &Key) -> Result<(), HttpError> {
    if request.method().is_safe() {
        return Ok(());
    }
    if let Some(given) = request.headers().get(FORM_HEADER) {
        let right = given.to_str().is_ok_and(|given| key.is_form_token(given));
        return if right { Ok(()) } else { Err(form_refused()) };
    }
    if !media_type(request.request()).eq_ignore_ascii_case(FORM_TYPE) {
        return Err(form_refused());
    }
    let unreadable = |_| HttpError::bad_request("the body cannot be read");
    let body = read_body(request.extract::<web::Payload>().await.map_err(unreadable)?).await?;
    let (token, rest) = split_form(&body).ok_or_else(form_refused)?;
    if !key.is_form_token(token) {
        return Err(form_refused());
    }
    let rest = body.slice_ref(rest);
    // It is counted again when it is read again.
    allowance::give_back(body.len());
    request.set_payload(Payload::Stream { payload: Box::pin(stream::once(future::ready(Ok(rest)))) });
    Ok(())
}

fn form_refused() -> HttpError {
    HttpError::forbidden(
        "this was not asked for by a page of your session: open the page again. Programs use a token or a password",
    )
}

/// The token, which is the first field, and what follows it.
fn split_form(body: &[u8]) -> Option<(&str, &[u8])> {
    let value = body.strip_prefix(FORM_FIELD.as_bytes())?.strip_prefix(b"=")?;
    let mut parts = value.splitn(2, |byte| *byte == b'&');
    let token = std::str::from_utf8(parts.next()?).ok()?;
    // A part of the body, though an empty one.
    Some((token, parts.next().unwrap_or(&value[value.len()..])))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::CONTENT_TYPE;
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn scripts_and_other_sites_do_not_get_it() {
        let key = Key::new().unwrap();
        let text = cookie(key.text(), true).to_string();
        assert!(text.starts_with(&format!("__Host-disbatch={}; ", key.text())), "{text}");
        for part in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("Domain"));
        let plain = cookie(key.text(), false).to_string();
        assert!(plain.starts_with("disbatch=") && !plain.contains("Secure"), "{plain}");
        let none = no_cookie(false).to_string();
        assert!(none.starts_with("disbatch=; ") && none.contains("Max-Age=0"), "{none}");
    }

    async fn checked(key: &Key, request: TestRequest) -> Result<String, u16> {
        let mut request = request.to_srv_request();
        check_form(&mut request, key).await.map_err(|error| error.status().as_u16())?;
        let body = request.extract::<String>().await.unwrap();
        Ok(body)
    }

    fn form(body: String) -> TestRequest {
        TestRequest::post().insert_header((CONTENT_TYPE, FORM_TYPE)).set_payload(body)
    }

    #[actix_web::test]
    async fn a_form_has_its_token_first() {
        let (key, other) = (Key::new().unwrap(), Key::new().unwrap());
        let token = key.form_token();
        assert_eq!(checked(&key, form(format!(".form_token={token}&a=1&b=2"))).await, Ok("a=1&b=2".into()));
        assert_eq!(checked(&key, form(format!(".form_token={token}"))).await, Ok(String::new()));
        for wrong in
            [String::new(), "a=1".into(), format!("a=1&.form_token={token}"), ".form_token=&a=1".into()]
        {
            assert_eq!(checked(&key, form(wrong.clone())).await, Err(403), "{wrong}");
        }
        let others = form(format!(".form_token={}&a=1", other.form_token()));
        assert_eq!(checked(&key, others).await, Err(403));
    }

    #[actix_web::test]
    async fn scripts_have_it_in_a_header() {
        let (key, other) = (Key::new().unwrap(), Key::new().unwrap());
        let json = || TestRequest::post().insert_header((CONTENT_TYPE, "application/json")).set_payload("{}");
        assert_eq!(checked(&key, json()).await, Err(403));
        assert_eq!(
            checked(&key, json().insert_header((FORM_HEADER, key.form_token()))).await,
            Ok("{}".into())
        );
        assert_eq!(checked(&key, json().insert_header((FORM_HEADER, other.form_token()))).await, Err(403));
        assert_eq!(checked(&key, TestRequest::get()).await, Ok(String::new()), "reading needs none");
    }
}
