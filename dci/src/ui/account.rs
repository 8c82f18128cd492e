//! `GET /account`: who somebody is here, what they may do, and their password, sessions and tokens.

pub mod facts;

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::HOST;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use bson::oid::ObjectId;
use disbatch_core::accounts::{NewToken, PasswordError, Role, UserName};
use disbatch_core::model::{Queue, QueueId};
use disbatch_wire::accounts::{self as wire, Account, CreatedToken, PasswordChange};
use disbatch_wire::liberal::Set;
use serde_json::{Value, json};

use crate::access::{Via, Who, address};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::{self, Rendered};
use crate::{access, changes, json, values};
use facts::{Facts, Form, Note, said};

/// Who asks, what they may do, and their sessions and tokens. What a token may do is told to whoever comes with it, but
/// not which sessions and tokens its owner has. Browsers get a page.
#[utoipa::path(
    get, path = "/account", tag = "accounts", operation_id = "getAccount",
    responses((status = 200, description = "Who it is; a page if `Accept` asks for HTML.", body = Account, content_type = JSON_OR_PAGE)),
)]
pub async fn handle(state: Data<State>, who: Who) -> Answer {
    json::of(&Facts::gather(&state, &who).await?.account())
}

pub async fn render(state: Data<State>, who: Who, Lenient(params): Lenient) -> Rendered {
    facts::render(&state, &who, StatusCode::OK, Note::Said(said(&params))).await
}

/// Ends one of the sessions of whoever asks: its browser has to log in again.
#[utoipa::path(
    post, path = "/account/sessions/{id}/end", tag = "accounts", operation_id = "endSession",
    params(("id" = String, Path, description = "The session's id.", example = "6b0003bb686c8275d8016666")),
    responses(
        (status = 200, description = "Ended.", body = Value, example = json!({"ended": true})),
        (status = 303, description = "Ended; the address of `.then` is next."),
        (status = 404, description = "You have no such session."),
        (status = 409, description = "Nobody is asked who they are, so nobody has sessions."),
    ),
)]
pub async fn end_session(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let name = owner(&who)?;
    let none = || HttpError::not_found("you have no such session");
    let id = ObjectId::parse_str(id.as_str()).map_err(|_| none())?;
    if !changes::end_session_of(&state, &who, &name, id).await? {
        return Err(none());
    }
    redirect::answer(&params, json::ok(&json!({ "ended": true })))
}

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
    request_body(content = PasswordChange, content_type = JSON_OR_FORM),
    responses(
        (
            status = 200, description = "Changed.", body = Value,
            example = json!({"said": "The password is changed, and all other sessions have ended."}),
        ),
        (status = 303, description = "Changed; the address of `.then` is next."),
        (status = 400, description = "A password is missing, or the new one cannot be used."),
        (status = 409, description = "Nobody is asked who they are, so nobody has a password."),
    ),
)]
pub async fn change_password(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    match change(&request, &state, &who, &params).await {
        Err(error) if redirect::is_form(&params) => {
            Ok(facts::refused(&state, &who, (Form::Password, &params), &error).await)
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
    if state.access.passwords.user(state, name.as_str(), &old, from).await?.is_none() {
        return Err(HttpError::forbidden("the old password is wrong"));
    }
    let hash = state.access.passwords.hash(new.clone()).await?.map_err(in_words)?;
    if !changes::set_password(state, who, &name, hash).await? {
        return Err(HttpError::not_found("there is no such user any more"));
    }
    tracing::info!(name = name.as_str(), from = who.from, "a password was changed");
    let said = json!({ "said": "The password is changed, and all other sessions have ended." });
    let mut response: HttpResponse = redirect::answer(params, json::ok(&said))?;
    // The browser that it was changed with stays logged in.
    if let Via::Session(_) = who.via
        && let Some((cookie, _)) = access::log_in(request, state, name.as_str(), &new).await?
    {
        response.add_cookie(&cookie).map_err(|_| HttpError::internal("a cookie cannot be sent"))?;
    }
    Ok(response)
}

/// The old password and the new one.
fn wanted(params: &Params) -> Result<(String, String), HttpError> {
    let PasswordChange { old, new, again } = params.known()?;
    let text = |given: Option<Value>, name: &str| match given {
        Some(Value::String(text)) => Ok(text),
        _ => Err(HttpError::bad_param("old and new must be given as text", name)),
    };
    let (old, new) = (text(old, "old")?, text(new, "new")?);
    if again.is_some_and(|again| again != new) {
        return Err(HttpError::bad_param("the new password is not the same twice", "again"));
    }
    if old == new {
        return Err(HttpError::bad_param("the new password is the old one", "new"));
    }
    Ok((old, new))
}

fn in_words(error: PasswordError) -> HttpError {
    match error {
        PasswordError::Length(_) => HttpError::bad_param(&error.to_string(), "new"),
        PasswordError::Hash => HttpError::internal("a password cannot be hashed"),
    }
}

/// How long a token may last: days, as the form sends them, and in words.
const LASTS: [(&str, &str); 5] =
    [("1", "1 day"), ("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "for ever")];

const USUAL_DAYS: u64 = 90;

/// The longest: ten years. What is to last longer lasts for ever.
const MOST_DAYS: i64 = 3_650;

/// So many tokens somebody can have that have not ended.
const MOST_TOKENS: usize = 100;

/// Makes a token for a program that is to act for whoever asks, with the role `role` at most, on these queues only if some are
/// named, for so many days: 90 unless told otherwise, null for ever. Its text is told once. It is revoked with its owner.
#[utoipa::path(
    post, path = "/account/tokens", tag = "accounts", operation_id = "createToken",
    request_body(content = wire::NewToken, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "The token, which nobody can read again; a page for the form of a page.", body = CreatedToken,
            content_type = JSON_OR_PAGE),
        (status = 400, description = "A parameter is missing or wrong."),
        (status = 409, description = "Nobody is asked who they are, or there are 100 tokens already."),
    ),
)]
pub async fn create_token(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    let is_form = redirect::is_form(&params);
    match create(&state, &who, &params).await {
        Ok((_, token)) if !is_form => json::of(&CreatedToken { token }),
        Ok((name, text)) => {
            let made = Note::Made { name, text, server: server(&request, &state) };
            Ok(ui::page(facts::render(&state, &who, StatusCode::OK, made).await))
        }
        Err(error) if is_form => Ok(facts::refused(&state, &who, (Form::Token, &params), &error).await),
        Err(error) => Err(error),
    }
}

/// Revokes one of the tokens of whoever asks: it lets in nobody any more.
#[utoipa::path(
    post, path = "/account/tokens/{id}/revoke", tag = "accounts", operation_id = "revokeToken",
    params(("id" = String, Path, description = "The token's id.", example = "6b0003bb686c8275d8017777")),
    responses(
        (status = 200, description = "Revoked.", body = Value, example = json!({"revoked": true})),
        (status = 303, description = "Revoked; the address of `.then` is next."),
        (status = 404, description = "You have no such token."),
        (status = 409, description = "Nobody is asked who they are, so nobody has tokens."),
    ),
)]
pub async fn revoke_token(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    let name = owner(&who)?;
    let none = || HttpError::not_found("you have no such token");
    let id = ObjectId::parse_str(id.as_str()).map_err(|_| none())?;
    if !changes::revoke_token(&state, &who, &name, id).await? {
        return Err(none());
    }
    redirect::answer(&params, json::ok(&json!({ "revoked": true })))
}

/// Its name and its text.
async fn create(state: &State, who: &Who, params: &Params) -> Result<(String, String), HttpError> {
    let name = owner(who)?;
    let own = who.rights.somewhere();
    let own =
        own.ok_or_else(|| HttpError::forbidden("you may do nothing here, and a token could do no more"))?;
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    let token = wanted_token(name, own, &queues, params)?;
    let tokens = state.store.list_tokens(Some(&token.user)).await?;
    // Those that have ended, by the server's clock, let in nobody.
    if tokens.iter().filter(|token| !token.is_over).count() >= MOST_TOKENS {
        return Err(HttpError::conflict(format!(
            "you have {MOST_TOKENS} tokens already: revoke one that is not used"
        )));
    }
    let text = changes::create_token(state, who, token.clone()).await?;
    tracing::info!(name = token.user.as_str(), token = token.name, from = who.from, "a token was made");
    Ok((token.name, text))
}

/// The token that is asked for, by somebody whose highest role is `own` and who sees these queues.
fn wanted_token(user: UserName, own: Role, queues: &[Queue], params: &Params) -> Result<NewToken, HttpError> {
    let given: wire::NewToken = params.known()?;
    let name = values::text("name", &given.name.unwrap_or_default())?.trim().to_owned();
    if name.is_empty() {
        return Err(HttpError::bad_param("name must say what the token is for", "name"));
    }
    let role = given.role.as_ref().and_then(Value::as_str);
    let role = role.ok_or_else(|| HttpError::bad_param("role is missing", "role"))?;
    let role: Role = role.parse().map_err(|error: String| HttpError::bad_param(&error, "role"))?;
    if role > own {
        return Err(HttpError::forbidden(format!("a token has no role above your own, which is {own}")));
    }
    let lasts = match given.days {
        None => Some(USUAL_DAYS),
        Some(Set(value)) => value.as_ref().map(days).transpose()?,
    };
    Ok(NewToken {
        user,
        name,
        role,
        queues: only(queues, given.queues.as_ref())?,
        lasts: lasts.map(|days| Duration::from_secs(days * 24 * 3600)),
    })
}

fn days(value: &Value) -> Result<u64, HttpError> {
    let wrong =
        || HttpError::bad_param(&format!("days must be an integer from 1 to {MOST_DAYS}, or null"), "days");
    let days = values::positive("days", value).ok().filter(|days| *days <= MOST_DAYS);
    days.and_then(|days| u64::try_from(days).ok()).ok_or_else(wrong)
}

/// The queues that are named, by name or id. None: it is not limited to any.
fn only(queues: &[Queue], named: Option<&Value>) -> Result<Option<BTreeSet<QueueId>>, HttpError> {
    let wrong = || HttpError::bad_param("queues must be names or ids of queues", "queues");
    let named: Vec<&str> = match named {
        None => return Ok(None),
        Some(Value::String(name)) => vec![name.as_str()],
        // To name none is not to name all.
        Some(Value::Array(names)) if !names.is_empty() => {
            names.iter().map(|name| name.as_str().ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(wrong()),
    };
    let find = |name: &str| {
        let is_it = |queue: &&Queue| queue.id.to_string() == name || queue.display_name() == name;
        let found = queues.iter().find(is_it).map(|queue| queue.id);
        found.ok_or_else(|| HttpError::bad_param(&format!("no queue '{name}'"), "queues"))
    };
    named.into_iter().map(find).collect::<Result<_, _>>().map(Some)
}

/// The address of this server, as the browser knows it.
fn server(request: &HttpRequest, state: &State) -> String {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let encrypted = address::is_encrypted(request, state.access.proxy.as_ref());
    format!("{}://{host}", if encrypted { "https" } else { "http" })
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::accounts::PasswordHash;

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
        wanted(&params).map_err(|error| error.to_string())
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

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    fn token_of(fields: Value) -> Result<NewToken, String> {
        let id = ObjectId::parse_str(ID).unwrap();
        let queue: Queue = bson::deserialize_from_document(doc! { "_id": id, "name": "mail" }).unwrap();
        let params = Params { fields: fields.as_object().unwrap().clone(), ..Params::default() };
        let token = wanted_token("alice".parse().unwrap(), Role::Submitter, &[queue], &params);
        token.map_err(|error| format!("{}: {error}", error.status().as_u16()))
    }

    #[test]
    fn a_token_is_made_as_it_is_asked_for() {
        let token = token_of(json!({ "name": " nightly ", "role": "viewer" })).unwrap();
        assert_eq!((token.name.as_str(), token.role, &token.queues), ("nightly", Role::Viewer, &None));
        assert_eq!(token.lasts, Some(Duration::from_secs(90 * 86_400)));
        let id = QueueId(ObjectId::parse_str(ID).unwrap());
        for queues in [json!(ID), json!("mail"), json!(["mail", ID])] {
            let fields = json!({ "name": "n", "role": "submitter", "queues": queues, "days": "30" });
            let token = token_of(fields).unwrap();
            assert_eq!(token.queues, Some(BTreeSet::from([id])), "{queues}");
            assert_eq!(token.lasts, Some(Duration::from_secs(30 * 86_400)));
        }
        for days in [json!(null), json!("")] {
            let fields = json!({ "name": "n", "role": "viewer", "days": days });
            assert_eq!(token_of(fields).unwrap().lasts, None, "{days}");
        }
        for (days, _) in LASTS {
            token_of(json!({ "name": "n", "role": "viewer", "days": days })).unwrap();
        }
    }

    #[test]
    fn no_token_may_more_than_its_owner() {
        for (fields, message) in [
            (json!({ "role": "viewer" }), "400: name must be text"),
            (json!({ "name": "  ", "role": "viewer" }), "400: name must say"),
            (json!({ "name": "n" }), "400: role is missing"),
            (json!({ "name": "n", "role": "root" }), "400: 'root' is no role"),
            (
                json!({ "name": "n", "role": "operator" }),
                "403: a token has no role above your own, which is submitter",
            ),
            (json!({ "name": "n", "role": "viewer", "days": 0 }), "400: days must be"),
            (json!({ "name": "n", "role": "viewer", "days": 3_651 }), "400: days must be"),
            (json!({ "name": "n", "role": "viewer", "days": "soon" }), "400: days must be"),
            (json!({ "name": "n", "role": "viewer", "queues": [] }), "400: queues must be"),
            (json!({ "name": "n", "role": "viewer", "queues": [5] }), "400: queues must be"),
            (json!({ "name": "n", "role": "viewer", "queues": "other" }), "400: no queue 'other'"),
        ] {
            let error = token_of(fields.clone()).unwrap_err();
            assert!(error.starts_with(message), "{fields}: {error}");
        }
    }
}
