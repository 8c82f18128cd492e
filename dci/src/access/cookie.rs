//! The cookie of a session.

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, SameSite};
use disbatch_core::accounts::Key;

/// Its name where it is only ever sent over TLS: browsers accept it from this host alone, for all paths.
const OVER_TLS: &str = "__Host-disbatch";

/// Its name elsewhere.
const PLAIN: &str = "disbatch";

fn name(encrypted: bool) -> &'static str {
    if encrypted { OVER_TLS } else { PLAIN }
}

/// The key that a browser sends.
pub fn key(request: &HttpRequest, encrypted: bool) -> Option<Key> {
    request.cookie(name(encrypted)).and_then(|cookie| Key::parse(cookie.value()))
}

/// What gives a browser its key, until it is closed or the session ends.
pub fn of(key: &Key, encrypted: bool) -> Cookie<'static> {
    Cookie::build(name(encrypted), key.text())
        .path("/")
        .http_only(true)
        .secure(encrypted)
        .same_site(SameSite::Lax)
        .finish()
}

/// What takes it away.
pub fn none(encrypted: bool) -> Cookie<'static> {
    let mut cookie = Cookie::build(name(encrypted), "")
        .path("/")
        .http_only(true)
        .secure(encrypted)
        .same_site(SameSite::Lax)
        .finish();
    cookie.make_removal();
    cookie
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_other_sites_do_not_get_it() {
        let key = Key::new().unwrap();
        let text = of(&key, true).to_string();
        assert!(text.starts_with(&format!("__Host-disbatch={}; ", key.text())), "{text}");
        for part in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("Domain"));
        let plain = of(&key, false).to_string();
        assert!(plain.starts_with("disbatch=") && !plain.contains("Secure"), "{plain}");
        let none = none(false).to_string();
        assert!(none.starts_with("disbatch=; ") && none.contains("Max-Age=0"), "{none}");
    }
}
