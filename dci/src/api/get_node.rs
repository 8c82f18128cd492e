//! `GET /nodes/:node`

use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;

use crate::api::{Answer, list_nodes};
use crate::error::HttpError;
use crate::json;
use crate::openapi::{self, Details, ErrorBody, OfRead};
use crate::params::{Params, wants_details};
use crate::state::State;

/// One node, by name or id.
///
/// # Errors
/// There is none, or the database cannot be reached.
#[utoipa::path(
    get, path = "/nodes/{node}", tag = "nodes", operation_id = "getNode",
    params(
        (
            "node" = String, Path, example = "worker1",
            description = "Its id if 24 hexadecimal digits, else its name.",
        ),
        Details,
    ),
    responses(
        (status = 200, description = "The node.", body = openapi::Node),
        (status = 404, description = "There is no such node.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, name: Path<String>, params: Result<Params, HttpError>) -> Answer {
    let node = state.store.find_node(&Selector::parse(&name)).await?;
    let node = node.ok_or_else(|| HttpError::not_found(format!("no node '{name}'")))?;
    Ok(json::ok(&list_nodes::node(node, wants_details(params))))
}
