//! Begins and ends sessions.

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;
use actix_web::http::header::USER_AGENT;

use super::{address, cookie};
use crate::changes;
use crate::error::HttpError;
use crate::state::State;

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
    let cookie = cookie::of(&key, address::is_encrypted(request, proxy));
    Ok(Login::Done { cookie, name: user.name.to_string() })
}
