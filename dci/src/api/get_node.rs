//! `GET /nodes/:node`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use bson::Document;
use disbatch_core::model::Selector;

use crate::api::{Answer, list_nodes};
use crate::error::HttpError;
use crate::json;
use crate::openapi::{self, Details, ErrorBody, OfRead};
use crate::params::{Params, wants_details};
use crate::state::State;
use crate::{accept, nodes, ui};

/// One node, by name or id. Browsers get a page.
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
        (
            status = 200, content((openapi::Node = "application/json"), (String = "text/html")),
            description = "The node; a page if `Accept` asks for HTML.",
        ),
        (status = 404, description = "There is no such node.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    name: Path<String>,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::node::render(&state, &name, &params.unwrap_or_default()).await));
    }
    let (node, details) = (find(&state, &name).await?, wants_details(params));
    let node = if details { nodes::as_it_is(&state, node).await?.0 } else { node };
    Ok(json::ok(&list_nodes::node(node, details)))
}

/// The node with this name or id, as stored.
pub async fn find(state: &State, name: &str) -> Result<Document, HttpError> {
    let node = state.store.find_node(&Selector::parse(name)).await?;
    node.ok_or_else(|| HttpError::not_found(format!("no node '{name}'")))
}
