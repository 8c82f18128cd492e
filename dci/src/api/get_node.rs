//! `GET /nodes/:node`

use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;

use crate::api::{Answer, list_nodes};
use crate::error::HttpError;
use crate::json;
use crate::state::State;

/// One node, by name or id.
///
/// # Errors
/// There is none, or the database cannot be reached.
pub async fn handle(state: Data<State>, name: Path<String>) -> Answer {
    let node = state.store.find_node(&Selector::parse(&name)).await?;
    let node = node.ok_or_else(|| HttpError::not_found(format!("no node '{name}'")))?;
    Ok(json::ok(&list_nodes::node(&node)))
}
