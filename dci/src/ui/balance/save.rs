//! `POST /ui/balance`: saves what somebody has put together on the page, unless something else was saved since the page
//! was loaded.

use std::collections::BTreeSet;

use actix_web::web::Data;
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::{Answer, get_balance, update_balance};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json};

const STALE: &str = "Other settings have been saved meanwhile. Load the page again to see them.";

/// Sets `max_tasks` and `queues` as `POST /balance` does, if the settings still have the revision `.base`, which the page has as
/// `data-revision`. With `.undo` they are what was there before, and may name queues that are gone. Answers the new revision.
#[utoipa::path(
    post, path = "/ui/balance", tag = "service", operation_id = "saveBalance",
    request_body(
        content = Value, content_type = "application/json",
        example = json!({"max_tasks": {"* 07:00": 5}, "queues": [[], ["mail"]], ".base": ""}),
    ),
    responses(
        (status = 200, description = "Saved.", body = Value, example = json!({"revision": "9f86d081884c7d65"})),
        (status = 400, description = "A parameter is missing or wrong.", body = ErrorBody),
        (status = 409, description = "Other settings have been saved meanwhile. Nothing is changed.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    let missing = || HttpError::bad_request(".base must be the revision that was changed");
    let base = params.options.get("base").and_then(Value::as_str).ok_or_else(missing)?;
    let known: BTreeSet<String> = get_balance::known_queues(&state).await?.into_iter().collect();
    let known = (!params.is_on("undo")).then_some(&known);
    let fields = update_balance::checked(&params.fields, known).map_err(HttpError::bad_request)?;
    match changes::change_balance(&state, &who, base.to_owned(), fields).await? {
        Some(revision) => Ok(json::ok(&json!({ "revision": revision }))),
        None => Err(HttpError::conflict(STALE)),
    }
}
