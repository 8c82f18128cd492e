//! `GET /account`: who somebody is here, what they may do, and their password, sessions and tokens.

mod browser;
mod facts;
mod page;
pub mod password;
pub mod rights;
pub mod tokens;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::oid::ObjectId;
use disbatch_core::accounts::UserName;
use serde_json::json;

pub use password::change_password;
pub use tokens::{create_token, revoke_token};

use crate::access::{Via, Who};
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{Account, ErrorBody, OfRead, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{accept, changes, json, ui};
use facts::Facts;
use page::{Notes, said};

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
    Ok(json::ok(&Facts::gather(&state, &who).await?.json()))
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
}
