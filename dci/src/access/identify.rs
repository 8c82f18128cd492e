//! Finds out who asks.

use actix_web::HttpRequest;
use actix_web::http::header::{AUTHORIZATION, COOKIE};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use disbatch_core::accounts::{Rights, UserName, is_token};

use super::{Via, Who, address, cookie};
use crate::error::HttpError;
use crate::state::State;

/// What a program shows.
#[derive(Debug, PartialEq, Eq)]
enum Authorization {
    Password { name: String, password: String },
    Token(String),
}

/// Who asks. `None`: nobody who is known. What is shown is believed in this order: a password or token, the word of a
/// proxy, the cookie of a session.
pub async fn identify(request: &HttpRequest, state: &State) -> Result<Option<Who>, HttpError> {
    let access = &state.access;
    let proxy = access.proxy.as_ref();
    let from = address::text(request, proxy);
    if access.is_open(&state.store, is_forwarded(request)).await? {
        return Ok(Some(Who::anybody(from)));
    }
    if let Some(value) = request.headers().get(AUTHORIZATION) {
        return match value.to_str().ok().and_then(shown) {
            Some(shown) => by_what_is_shown(request, state, shown, from).await,
            None => Ok(None),
        };
    }
    if let Some(header) = proxy.and_then(|proxy| proxy.user_header.as_deref())
        && proxy.is_some_and(|proxy| address::is_from_proxy(request, proxy))
        && request.headers().contains_key(header)
    {
        // If there are several, the client has written one of them.
        let mut names = request.headers().get_all(header);
        let (Some(name), None) = (names.next(), names.next()) else { return Ok(None) };
        let name = name.to_str().ok().and_then(|name| name.parse::<UserName>().ok());
        let Some(name) = name else { return Ok(None) };
        let user = state.store.find_user(&name).await?;
        // Whom the proxy has let in is known, though they may have no rights here.
        let rights = user.map_or_else(Rights::default, |user| user.rights);
        return Ok(Some(Who { name: Some(name.to_string()), via: Via::Proxy, rights, from, trace: None }));
    }
    let Some(key) = cookie::key(request, address::is_encrypted(request, proxy)) else { return Ok(None) };
    let user = state.store.session_user(&key, access.limits).await?;
    Ok(user.map(|user| Who {
        name: Some(user.name.to_string()),
        via: Via::Session(key),
        rights: user.rights,
        from,
        trace: None,
    }))
}

/// Whether a request shows who makes it, rightly or not.
pub fn has_shown(request: &HttpRequest) -> bool {
    [AUTHORIZATION, COOKIE].iter().any(|name| request.headers().contains_key(name))
}

/// Whether something stands between the client and this server, so that not only this machine asks.
fn is_forwarded(request: &HttpRequest) -> bool {
    ["x-forwarded-for", "forwarded", "x-real-ip"].iter().any(|name| request.headers().contains_key(*name))
}

async fn by_what_is_shown(
    request: &HttpRequest,
    state: &State,
    shown: Authorization,
    from: String,
) -> Result<Option<Who>, HttpError> {
    let address = address::of(request, state.access.proxy.as_ref());
    let passwords = &state.access.passwords;
    let (name, text) = match shown {
        // A client that can send nothing else may send a token in place of the password.
        Authorization::Password { name, password } if is_token(&password) => (Some(name), password),
        Authorization::Password { name, password } => {
            let user = passwords.user(state, &name, &password, address).await?;
            return Ok(user.map(|user| Who {
                name: Some(user.name.to_string()),
                via: Via::Password,
                rights: user.rights,
                from,
                trace: None,
            }));
        }
        Authorization::Token(text) => (None, text),
    };
    let bearer = state.store.token_bearer(&text, &from).await?;
    let is_theirs = |owner: &str| name.as_deref().is_none_or(|name| name == owner);
    let Some(bearer) = bearer.filter(|bearer| is_theirs(bearer.user.name.as_str())) else {
        passwords.count_wrong_token(address)?;
        tracing::warn!(from, "a token that is none, or not any more");
        return Ok(None);
    };
    Ok(Some(Who {
        name: Some(bearer.user.name.to_string()),
        via: Via::Token { name: bearer.token, text },
        rights: bearer.user.rights,
        from,
        trace: None,
    }))
}

/// What the header `Authorization` says.
fn shown(value: &str) -> Option<Authorization> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Authorization::Token(rest.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some(Authorization::Password { name: name.to_owned(), password: password.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read() {
        let password = |name: &str, password: &str| {
            Some(Authorization::Password { name: name.to_owned(), password: password.to_owned() })
        };
        assert_eq!(shown("Basic YWxpY2U6YTpi"), password("alice", "a:b"));
        assert_eq!(shown("basic  w7xuYWw6"), password("ünal", ""));
        assert_eq!(shown("Bearer disbatch_x"), Some(Authorization::Token("disbatch_x".into())));
        for rubbish in ["", "Basic", "Basic !", "Basic YWxpY2U=", "Digest x", "Basic /w=="] {
            assert_eq!(shown(rubbish), None, "{rubbish}");
        }
    }
}
