//! `POST /account/sessions/:id/end`

use actix_web::web::{Data, Path};
use bson::oid::ObjectId;
use serde_json::json;

use super::owner;
use crate::access::Who;
use crate::api::{Answer, then};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json};

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
    then::or_page(then::is_form(&params), end(&state, &who, &id, &params).await)
}

async fn end(state: &State, who: &Who, id: &str, params: &Params) -> Answer {
    let name = owner(who)?;
    let none = || HttpError::not_found("you have no such session");
    let id = ObjectId::parse_str(id).map_err(|_| none())?;
    if !changes::end_session_of(state, who, &name, id).await? {
        return Err(none());
    }
    then::answer(params, json::ok(&json!({ "ended": true })))
}
