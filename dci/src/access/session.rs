//! Sessions of browsers: their cookie, and how they begin.

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::http::header::USER_AGENT;
use disbatch_core::accounts::Key;

use super::address;
use crate::changes;
use crate::error::HttpError;
use crate::state::State;

/// Its name where it is only ever sent over TLS: browsers accept it from this host alone, for all paths.
const OVER_TLS: &str = "__Host-disbatch";

/// Its name elsewhere.
const PLAIN: &str = "disbatch";

fn cookie_name(encrypted: bool) -> &'static str {
    if encrypted { OVER_TLS } else { PLAIN }
}

/// The key that a browser sends.
pub fn key(request: &HttpRequest, encrypted: bool) -> Option<Key> {
    request.cookie(cookie_name(encrypted)).and_then(|cookie| Key::parse(cookie.value()))
}

/// What gives a browser its key, until it is closed or the session ends.
pub fn cookie(key: &Key, encrypted: bool) -> Cookie<'static> {
    Cookie::build(cookie_name(encrypted), key.text())
        .path("/")
        .http_only(true)
        .secure(encrypted)
        .same_site(SameSite::Lax)
        .finish()
}

/// What takes it away.
pub fn no_cookie(encrypted: bool) -> Cookie<'static> {
    let mut cookie = Cookie::build(cookie_name(encrypted), "")
        .path("/")
        .http_only(true)
        .secure(encrypted)
        .same_site(SameSite::Lax)
        .finish();
    cookie.make_removal();
    cookie
}

/// No more of what a browser calls itself is kept, in characters.
const LONGEST_AGENT: usize = 200;

/// How a login went.
#[derive(Debug)]
pub enum Login {
    /// The cookie for the browser, and the name as it is stored.
    Done { cookie: Cookie<'static>, name: String },
    /// There is no such user, or it is not their password.
    Wrong,
}

/// Begins a session for whoever knows the password.
pub async fn log_in(
    request: &HttpRequest,
    state: &State,
    name: &str,
    password: &str,
) -> Result<Login, HttpError> {
    let access = &state.access;
    let proxy = access.proxy.as_ref();
    let from = address::of(request, proxy);
    let Some(user) = access.passwords.user(state, name, password, from).await? else {
        return Ok(Login::Wrong);
    };
    let agent = request.headers().get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let agent: String = agent.unwrap_or_default().chars().take(LONGEST_AGENT).collect();
    let from = address::text(request, proxy);
    let key = changes::begin_session(state, &user, from, agent).await?;
    let cookie = cookie(&key, address::is_encrypted(request, proxy));
    Ok(Login::Done { cookie, name: user.name.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_other_sites_do_not_get_it() {
        let key = Key::new().unwrap();
        let text = cookie(&key, true).to_string();
        assert!(text.starts_with(&format!("__Host-disbatch={}; ", key.text())), "{text}");
        for part in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("Domain"));
        let plain = cookie(&key, false).to_string();
        assert!(plain.starts_with("disbatch=") && !plain.contains("Secure"), "{plain}");
        let none = no_cookie(false).to_string();
        assert!(none.starts_with("disbatch=; ") && none.contains("Max-Age=0"), "{none}");
    }
}
