//! `GET /balance`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::config::Balance;
use disbatch_core::store::StoreError;
use serde_json::{Map, Value, json};

use crate::api::Answer;
use crate::json::{self, Dates};
use crate::openapi::OfRead;
use crate::state::State;
use crate::{accept, ui};

/// The document of `QueueBalance`, its switches, and the names of all queues: JSON for people, or a page.
#[utoipa::path(
    get, path = "/balance", tag = "balance", operation_id = "getBalance",
    responses(
        (
            status = 200, description = "The document without its id, and what is known of it; or a page.",
            content((Value = "application/json"), (String = "text/html")),
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::balance::render(&state).await));
    }
    Ok(json::ok_pretty(&Value::Object(find(&state).await?)))
}

/// What there is to show.
pub async fn find(state: &State) -> Result<Map<String, Value>, StoreError> {
    let (document, mut known) = futures::try_join!(state.store.stored_balance(), known_queues(state))?;
    known.sort_unstable();
    let mut shown = match document {
        Some(document) => json::from_document(&document, Dates::Text),
        None => Map::from_iter([("notice".to_owned(), Value::from("balance document not found"))]),
    };
    shown.remove("_id");
    shown.insert("known_queues".to_owned(), known.into());
    shown.insert("settings".to_owned(), settings(state.balance));
    Ok(shown)
}

/// The names of all queues.
pub async fn known_queues(state: &State) -> Result<Vec<String>, StoreError> {
    Ok(state.store.list_queues().await?.iter().map(disbatch_core::model::Queue::display_name).collect())
}

fn settings(balance: Balance) -> Value {
    json!({
        "enabled": balance.enabled.0,
        "log": balance.log.0,
        "pretend": balance.pretend.0,
        "verbose": balance.verbose.0,
    })
}
