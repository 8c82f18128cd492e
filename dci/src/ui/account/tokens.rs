//! `POST /account/tokens` and `POST /account/tokens/:id/revoke`: what programs are let in with.

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::HOST;
use actix_web::web::{Data, Path};
use bson::oid::ObjectId;
use disbatch_core::accounts::{NewToken, Role, UserName};
use disbatch_core::model::{Queue, QueueId};
use disbatch_wire::accounts::CreatedToken;
use serde_json::{Value, json};

use super::owner;
use super::page::{self, Form, Made, Notes};
use crate::access::{Who, address};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, ui, values};

/// How long a token may last: days, as the form sends them, and in words.
pub const LASTS: [(&str, &str); 5] =
    [("1", "1 day"), ("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "for ever")];

/// So many days it lasts unless told otherwise.
const USUAL_DAYS: u64 = 90;

/// The longest: ten years. What is to last longer lasts for ever.
const MOST_DAYS: i64 = 3_650;

/// So many tokens somebody can have that have not ended.
const MOST: usize = 100;

/// Makes a token for a program that is to act for whoever asks, with the role `role` at most, on these queues only if some are
/// named, for so many days: 90 unless told otherwise, null for ever. Its text is told once. It is revoked with its owner.
#[utoipa::path(
    post, path = "/account/tokens", tag = "accounts", operation_id = "createToken",
    request_body(content(
        (openapi::NewToken = "application/json"), (openapi::NewToken = "application/x-www-form-urlencoded"),
    )),
    responses(
        (
            status = 200, content((CreatedToken = "application/json"), (String = "text/html")),
            description = "The token, which nobody can read again; a page for the form of a page.",
        ),
        (status = 400, description = "A parameter is missing or wrong.", body = ErrorBody),
        (
            status = 409, description = "Nobody is asked who they are, or there are 100 tokens already.",
            body = ErrorBody,
        ),
        OfWrite,
    ),
)]
pub async fn create_token(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    let is_form = redirect::is_form(&params);
    match create(&state, &who, &params).await {
        Ok((_, token)) if !is_form => json::of(&CreatedToken { token }),
        Ok((name, text)) => {
            let made = Made { name, text, server: server(&request, &state) };
            let notes = Notes { made: Some(made), ..Notes::default() };
            Ok(ui::page(page::render(&state, &who, StatusCode::OK, notes).await))
        }
        Err(error) if is_form => Ok(page::refused(&state, &who, (Form::Token, &params), &error).await),
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
        (status = 404, description = "You have no such token.", body = ErrorBody),
        (status = 409, description = "Nobody is asked who they are, so nobody has tokens.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn revoke_token(state: Data<State>, who: Who, id: Path<String>, params: Params) -> Answer {
    redirect::or_page(redirect::is_form(&params), revoke(&state, &who, &id, &params).await)
}

async fn revoke(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let name = owner(who)?;
    let none = || HttpError::not_found("you have no such token");
    let id = ObjectId::parse_str(id).map_err(|_| none())?;
    if !changes::revoke_token(state, who, &name, id).await? {
        return Err(none());
    }
    redirect::answer(params, json::ok(&json!({ "revoked": true })))
}

/// Its name and its text.
async fn create(state: &State, who: &Who, params: &Params) -> Result<(String, String), HttpError> {
    let name = owner(who)?;
    let own = who.rights.somewhere();
    let own =
        own.ok_or_else(|| HttpError::forbidden("you may do nothing here, and a token could do no more"))?;
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    let token = wanted(name, own, &queues, params)?;
    let tokens = state.store.list_tokens(Some(&token.user)).await?;
    // Those that have ended, by the server's clock, let in nobody.
    if tokens.iter().filter(|token| !token.is_over).count() >= MOST {
        return Err(HttpError::conflict(format!(
            "you have {MOST} tokens already: revoke one that is not used"
        )));
    }
    let text = changes::create_token(state, who, token.clone()).await?;
    tracing::info!(name = token.user.as_str(), token = token.name, from = who.from, "a token was made");
    Ok((token.name, text))
}

/// The token that is asked for, by somebody whose highest role is `own` and who sees these queues.
fn wanted(user: UserName, own: Role, queues: &[Queue], params: &Params) -> Result<NewToken, HttpError> {
    let null = Value::Null;
    let given = |name: &str| params.fields.get(name).unwrap_or(&null);
    let name = values::text("name", given("name"))?.trim().to_owned();
    if name.is_empty() {
        return Err(HttpError::bad_param("name must say what the token is for", "name"));
    }
    let role = given("role").as_str().ok_or_else(|| HttpError::bad_param("role is missing", "role"))?;
    let role: Role = role.parse().map_err(|error: String| HttpError::bad_param(&error, "role"))?;
    if role > own {
        return Err(HttpError::forbidden(format!("a token has no role above your own, which is {own}")));
    }
    let lasts = match params.fields.get("days") {
        None => Some(USUAL_DAYS),
        Some(value) if values::is_unset(value) => None,
        Some(value) => Some(days(value)?),
    };
    Ok(NewToken {
        user,
        name,
        role,
        queues: only(queues, params.fields.get("queues"))?,
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
        None | Some(Value::Null) => return Ok(None),
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

    use super::*;

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    fn of(fields: Value) -> Result<NewToken, String> {
        let id = ObjectId::parse_str(ID).unwrap();
        let queue: Queue = bson::deserialize_from_document(doc! { "_id": id, "name": "mail" }).unwrap();
        let params = Params { fields: fields.as_object().unwrap().clone(), ..Params::default() };
        let token = wanted("alice".parse().unwrap(), Role::Submitter, &[queue], &params);
        token.map_err(|error| format!("{}: {error}", error.status().as_u16()))
    }

    #[test]
    fn a_token_is_made_as_it_is_asked_for() {
        let token = of(json!({ "name": " nightly ", "role": "viewer" })).unwrap();
        assert_eq!((token.name.as_str(), token.role, &token.queues), ("nightly", Role::Viewer, &None));
        assert_eq!(token.lasts, Some(Duration::from_secs(90 * 86_400)));
        let id = QueueId(ObjectId::parse_str(ID).unwrap());
        for queues in [json!(ID), json!("mail"), json!(["mail", ID])] {
            let fields = json!({ "name": "n", "role": "submitter", "queues": queues, "days": "30" });
            let token = of(fields).unwrap();
            assert_eq!(token.queues, Some(BTreeSet::from([id])), "{queues}");
            assert_eq!(token.lasts, Some(Duration::from_secs(30 * 86_400)));
        }
        for days in [json!(null), json!("")] {
            let fields = json!({ "name": "n", "role": "viewer", "days": days });
            assert_eq!(of(fields).unwrap().lasts, None, "{days}");
        }
        for (days, _) in LASTS {
            of(json!({ "name": "n", "role": "viewer", "days": days })).unwrap();
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
            let error = of(fields.clone()).unwrap_err();
            assert!(error.starts_with(message), "{fields}: {error}");
        }
    }
}
