//! `GET /account`: who somebody is here, what they may do, and their password, sessions and tokens.

pub mod facts;
mod page;
pub mod tokens;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use bson::oid::ObjectId;
use disbatch_core::accounts::{PasswordError, PasswordHash, UserName};
use disbatch_wire::accounts::Account;
use serde_json::{Value, json};

use crate::access::{Login, Via, Who, address};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfRead, OfWrite, PasswordChange};
use crate::params::Params;
use crate::state::State;
use crate::{accept, access, changes, json, ui};
use facts::Facts;
use page::{Form, Notes, said};
pub use tokens::{create_token, revoke_token};

/// Who asks, what they may do, and their sessions and tokens. What a token may do is told to whoever comes with it, but
/// not which sessions and tokens its owner has. Browsers get a page.
#[utoipa::path(
    get, path = "/account", tag = "accounts", operation_id = "getAccount",
    responses(
        (
            status = 200, content((Account = "application/json"), (String = "text/html")),
            description = "Who it is; a page if `Accept` asks for HTML.",
        ),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        let notes = Notes { said: said(&params.unwrap_or_default()), ..Notes::default() };
        return Ok(ui::page(page::render(&state, &who, StatusCode::OK, notes).await));
    }
    json::of(&Facts::gather(&state, &who).await?.account())
}

/// Ends one of the sessions of whoever asks: its browser has to log in again.
#[utoipa::path(
    post, path = "/account/sessions/{id}/end", tag = "accounts", operation_id = "endSession",
    params(("id" = String, Path, description = "The session's id.", example = "6b0003bb686c8275d8016666")),
    responses(
        (status = 200, description = "Ended.", body = Value, example = json!({"ended": true})),
        (status = 303, description = "Ended; the address of `.then` is next."),
        (status = 404, description = "You have no such session.", body = ErrorBody),
        (status = 409, description = "Nobody is asked who they are, so nobody has sessions.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn end_session(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    redirect::or_page(redirect::is_form(&params), end(&state, &who, &id, &params).await)
}

async fn end(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let name = owner(who)?;
    let none = || HttpError::not_found("you have no such session");
    let id = ObjectId::parse_str(id).map_err(|_| none())?;
    if !changes::end_session_of(state, who, &name, id).await? {
        return Err(none());
    }
    redirect::answer(params, json::ok(&json!({ "ended": true })))
}

/// Whose account it is that is to be changed.
fn owner(who: &Who) -> Result<UserName, HttpError> {
    if let Via::Token { .. } = who.via {
        return Err(HttpError::forbidden(
            "a token cannot change its owner's account: log in, or send the password",
        ));
    }
    let name = who.name.as_deref().and_then(|name| name.parse().ok());
    name.ok_or_else(|| HttpError::conflict("nobody is asked who they are here, so nobody has an account"))
}

/// Changes the password of whoever asks, and ends all their sessions. One who asks with a session gets another one: the
/// cookie of the answer is its key. Tokens stay as they are.
#[utoipa::path(
    post, path = "/account/password", tag = "accounts", operation_id = "changePassword",
    request_body(content(
        (PasswordChange = "application/json"), (PasswordChange = "application/x-www-form-urlencoded"),
    )),
    responses(
        (
            status = 200, description = "Changed.", body = Value,
            example = json!({"said": "The password is changed, and all other sessions have ended."}),
        ),
        (status = 303, description = "Changed; the address of `.then` is next."),
        (status = 400, description = "A password is missing, or the new one cannot be used.", body = ErrorBody),
        (status = 409, description = "Nobody is asked who they are, so nobody has a password.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn change_password(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    match change(&request, &state, &who, &params).await {
        Err(error) if redirect::is_form(&params) => {
            Ok(page::refused(&state, &who, (Form::Password, &params), &error).await)
        }
        other => other,
    }
}

async fn change(request: &HttpRequest, state: &State, who: &Who, params: &Params) -> Answer {
    let name = owner(who)?;
    if who.via == Via::Proxy {
        return Err(HttpError::forbidden("your password is kept by the proxy that has let you in"));
    }
    let (old, new) = wanted(params)?;
    let from = address::of(request, state.access.proxy.as_ref());
    if state.access.passwords.user(state, name.as_str(), old, from).await?.is_none() {
        return Err(HttpError::forbidden("the old password is wrong"));
    }
    let hash = hash(state, new.to_owned()).await?;
    if !changes::set_password(state, who, &name, hash).await? {
        return Err(HttpError::not_found("there is no such user any more"));
    }
    tracing::info!(name = name.as_str(), from = who.from, "a password was changed");
    let said = json!({ "said": "The password is changed, and all other sessions have ended." });
    let mut response: HttpResponse = redirect::answer(params, json::ok(&said))?;
    // The browser that it was changed with stays logged in.
    if let Via::Session(_) = who.via
        && let Login::Done { cookie, .. } = access::log_in(request, state, name.as_str(), new).await?
    {
        response.add_cookie(&cookie).map_err(|_| HttpError::internal("a cookie cannot be sent"))?;
    }
    Ok(response)
}

/// The old password and the new one.
fn wanted(params: &Params) -> Result<(&str, &str), HttpError> {
    let given = |name: &str| {
        let value = params.fields.get(name).and_then(Value::as_str);
        value.ok_or_else(|| HttpError::bad_param("old and new must be given as text", name))
    };
    let (old, new) = (given("old")?, given("new")?);
    if params.fields.get("again").is_some_and(|again| again.as_str() != Some(new)) {
        return Err(HttpError::bad_param("the new password is not the same twice", "again"));
    }
    if old == new {
        return Err(HttpError::bad_param("the new password is the old one", "new"));
    }
    Ok((old, new))
}

async fn hash(state: &State, password: String) -> Result<PasswordHash, HttpError> {
    state.access.passwords.hash(password).await?.map_err(in_words)
}

fn in_words(error: PasswordError) -> HttpError {
    match error {
        PasswordError::Length(_) => HttpError::bad_param(&error.to_string(), "new"),
        PasswordError::Hash => HttpError::internal("a password cannot be hashed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_nobody_have_no_account_to_change() {
        let mut who = Who::anybody("10.0.0.1".into());
        assert_eq!(owner(&who).unwrap_err().status(), 409);
        who.name = Some("alice".into());
        for via in [Via::Password, Via::Proxy] {
            who.via = via;
            assert_eq!(owner(&who).unwrap().as_str(), "alice");
        }
        who.via = Via::Token { name: "nightly".into(), text: "disbatch_x".into() };
        let error = owner(&who).unwrap_err();
        assert_eq!(error.status(), 403);
        assert!(error.message().contains("a token cannot change"), "{error}");
    }

    fn of(fields: Value) -> Result<(String, String), String> {
        let params = Params { fields: fields.as_object().unwrap().clone(), ..Params::default() };
        let wanted = wanted(&params).map(|(old, new)| (old.to_owned(), new.to_owned()));
        wanted.map_err(|error| error.to_string())
    }

    #[test]
    fn the_new_password_is_another_and_the_same_twice() {
        let expected = Ok(("a".to_owned(), "b".to_owned()));
        assert_eq!(of(json!({"old": "a", "new": "b"})), expected);
        assert_eq!(of(json!({"old": "a", "new": "b", "again": "b"})), expected);
        for (fields, message) in [
            (json!({"new": "b"}), "old and new must be given as text"),
            (json!({"old": "a", "new": 12_345_678_901_i64}), "old and new must be given as text"),
            (json!({"old": "a", "new": "b", "again": "c"}), "the new password is not the same twice"),
            (json!({"old": "a", "new": "b", "again": 5}), "the new password is not the same twice"),
            (json!({"old": "a", "new": "a"}), "the new password is the old one"),
        ] {
            assert_eq!(of(fields.clone()), Err(message.to_owned()), "{fields}");
        }
    }

    #[test]
    fn a_password_that_is_too_short_is_refused_with_its_name() {
        let error = PasswordHash::of("short").map_err(in_words).unwrap_err();
        assert_eq!(
            (error.status().as_u16(), error.json().contains("\"param\":\"new\"")),
            (400, true),
            "{error}"
        );
    }
}
