//! What web services say about the tasks that they work on. They show the token that they were given with the task, and need
//! no login. Each call starts the time anew in which the service has to be heard of.

pub mod job_storage;
pub mod log;
pub mod status;

use std::net::IpAddr;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::AUTHORIZATION;
use bson::Bson;
use disbatch_core::budget;
use disbatch_core::callbacks::{Heard, MOST_CALLS, MOST_LOG, Token};
use disbatch_core::model::TaskId;
use serde_json::{Value, json};

use crate::access::address;
use crate::allowance::weight::Weight;
use crate::api::{Answer, task_action};
use crate::error::HttpError;
use crate::state::State;
use crate::{allowance, connections, json};

/// Which task a web service calls back for.
#[derive(Debug, Clone)]
pub struct Caller {
    pub task: TaskId,
    /// What was shown.
    pub token: Token,
}

/// Finds out which task a web service may call back for, before its body is read, and how the task stands.
async fn caller(state: &State, request: &HttpRequest, id: &str) -> Result<(Caller, Heard), HttpError> {
    let (id, token) = match id.split_once('-') {
        // Who shows nothing else must not come from everywhere.
        Some((id, token)) if is_near(request, state) => (id, Token::parse(token).map(Token::in_address)),
        Some((id, _)) => (id, None),
        None => (id, shown(request)),
    };
    let token = token.ok_or_else(unknown)?;
    let task = task_action::id(id)?;
    let heard = state.store.callback_bearer(task, &token).await?;
    let caller = Caller { task, token };
    match heard {
        Heard::Done | Heard::Over => {
            allowance::known();
            connections::known(request);
            Ok((caller, heard))
        }
        Heard::NoSuchTask | Heard::WrongToken | Heard::LogFull => Err(refusal(heard)),
    }
}

/// The same, if the task has not ended.
async fn caller_of_running(state: &State, request: &HttpRequest, id: &str) -> Result<Caller, HttpError> {
    let (caller, heard) = caller(state, request, id).await?;
    if heard == Heard::Done { Ok(caller) } else { Err(refusal(heard)) }
}

fn answer(heard: Heard, caller: &Caller, outcome: &str) -> Answer {
    match heard {
        Heard::Done => Ok(json::ok(&json!({ "id": caller.task.to_string(), "outcome": outcome }))),
        Heard::Over | Heard::NoSuchTask | Heard::WrongToken | Heard::LogFull => Err(refusal(heard)),
    }
}

fn refusal(heard: Heard) -> HttpError {
    match heard {
        // Alike, so that nobody without a token finds out which tasks there are.
        Heard::NoSuchTask | Heard::WrongToken => unknown(),
        Heard::Over => {
            HttpError::new(StatusCode::GONE, "the task has ended, or has been given to another run")
        }
        Heard::LogFull => HttpError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "the log of a task may have {MOST_LOG} bytes and {MOST_CALLS} calls, and this one is full"
            ),
        ),
        Heard::Done => HttpError::internal("a callback was refused that is done"),
    }
}

fn unknown() -> HttpError {
    HttpError::unauthorized("this needs the header 'Authorization: Bearer TOKEN' with the token of the task")
}

/// Whether a request comes from this host or a private network.
fn is_near(request: &HttpRequest, state: &State) -> bool {
    address::of(request, state.access.proxy.as_ref()).is_some_and(is_private)
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// The token that a request shows.
fn shown(request: &HttpRequest) -> Option<Token> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") { Token::parse(token.trim()) } else { None }
}

/// A body that is JSON, whatever its media type says.
fn json_of(body: &[u8]) -> Result<Value, HttpError> {
    allowance::take_for(&Weight::of_json(body))?;
    serde_json::from_slice(body)
        .map_err(|error| HttpError::bad_request(format!("the body is not JSON: {error}")))
}

/// A value that takes at most so many bytes in a task. `what` it is, for the message.
fn within<T: Into<Bson> + Clone>(what: &'static str, value: T, limit: usize) -> Result<T, HttpError> {
    let bytes = budget::size_of_field("", &value.clone().into());
    if bytes <= limit {
        return Ok(value);
    }
    let message = format!("{what} takes {bytes} bytes as BSON, and may take {limit}");
    Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn with(value: &str) -> Option<Token> {
        shown(&TestRequest::post().insert_header((AUTHORIZATION, value)).to_http_request())
    }

    #[test]
    fn only_a_bearer_of_a_token_is_let_in() {
        let token = "0a".repeat(32);
        for right in [format!("Bearer {token}"), format!("bearer  {token}")] {
            assert_eq!(with(&right).map(|token| token.text().to_owned()), Some(token.clone()), "{right}");
        }
        for wrong in
            ["", "Bearer", "Bearer x", &token, &format!("Basic {token}"), &format!("Bearer {token}0")]
        {
            assert!(with(wrong).is_none(), "{wrong}");
        }
        assert!(shown(&TestRequest::post().to_http_request()).is_none());
    }

    #[test]
    fn only_private_networks_are_near() {
        for near in
            ["127.0.0.1", "10.9.8.7", "172.31.0.1", "192.168.1.1", "169.254.1.1", "::1", "fd00::1", "fe80::1"]
        {
            assert!(is_private(near.parse().unwrap()), "{near}");
        }
        for far in ["8.8.8.8", "172.32.0.1", "100.64.0.1", "0.0.0.0", "2001:db8::1", "::"] {
            assert!(!is_private(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn each_refusal_has_its_status() {
        let of = |heard| refusal(heard).status().as_u16();
        let all = [Heard::NoSuchTask, Heard::WrongToken, Heard::Over, Heard::LogFull];
        assert_eq!(all.map(of), [401, 401, 410, 413]);
        assert_eq!(refusal(Heard::NoSuchTask), refusal(Heard::WrongToken));
    }
}
