//! Nodes: how they are doing, how much they may run, and the removal of those that are gone.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::{Bson, Document};
use disbatch_core::model::Selector;
use disbatch_core::node::{Draining, NodeChange, Removed};
use disbatch_wire::nodes::Node;
use disbatch_wire::options::Details;
use serde_json::Value;

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{DeleteResult, JSON_OR_FORM, JSON_OR_PAGE, UpdateResult};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::nodes::{as_it_is, as_they_are};
use crate::{changes, fields, json, legacy, openapi, values};

/// All nodes in order of name. With the option `.details`, also what their DENs say of themselves. Browsers get a page.
#[utoipa::path(
    get, path = "/nodes", tag = "nodes", operation_id = "listNodes",
    params(Details),
    responses(
        (status = 200, description = "All nodes; a page if `Accept` asks for HTML.", body = Vec<Node>, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn list(state: Data<State>, Lenient(params): Lenient) -> Answer {
    let (nodes, details) = (state.store.list_nodes().await?, params.is_on("details"));
    let nodes = if details { as_they_are(&state, nodes).await?.0 } else { nodes };
    Ok(json::ok(&nodes.into_iter().map(|document| node(document, details)).collect()))
}

/// A node, with its id as text too, and times in milliseconds since 1970.
pub fn node(document: Document, details: bool) -> Value {
    let id = document.get("_id").and_then(Bson::as_object_id);
    let mut node = json::from_document(&fields::of_node(document, details), Dates::Millis);
    if let Some(id) = id {
        node.insert("id".to_owned(), id.to_hex().into());
    }
    Value::Object(node)
}

/// One node, by name or id. Browsers get a page.
#[utoipa::path(
    get, path = "/nodes/{node}", tag = "nodes", operation_id = "getNode",
    params(Details),
    responses(
        (status = 200, description = "The node; a page if `Accept` asks for HTML.", body = Node, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn get(state: Data<State>, name: Path<String>, Lenient(params): Lenient) -> Answer {
    let (found, details) = (find(&state, &name).await?, params.is_on("details"));
    let found = if details { as_it_is(&state, found).await?.0 } else { found };
    Ok(json::ok(&node(found, details)))
}

pub async fn find(state: &State, name: &str) -> Result<Document, HttpError> {
    let node = state.store.find_node(&Selector::parse(name)).await?;
    node.ok_or_else(|| HttpError::not_found(format!("no node '{name}'")))
}

/// Sets `maxthreads`, how many tasks may run on the node at once (null for no limit), or `draining`, whether it is
/// to claim nothing more. With `interrupt` besides, running tasks whose plugins can be interrupted go on elsewhere.
#[utoipa::path(
    post, path = "/nodes/{node}", tag = "nodes", operation_id = "updateNode",
    request_body(content = openapi::NodeChange, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Changed.", body = UpdateResult),
        (status = 400, description = "A parameter is wrong, or there is no such node."),
    ),
)]
pub async fn set(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    let change = change(&params)?;
    let updated = changes::update_node(&state, &who, Selector::parse(&name), change).await?;
    let result = legacy::update_result(updated);
    if updated.matched == 0 {
        let inner = result["MongoDB::UpdateResult"].clone();
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, legacy::with(result, "error", inner)));
    }
    redirect::answer(&params, json::ok(&result))
}

fn change(params: &Params) -> Result<NodeChange, HttpError> {
    if let Some(param) = params.unknown(disbatch_wire::options::field_names::<openapi::NodeChange>()) {
        return Err(HttpError::bad_param("Invalid param", param));
    }
    if params.fields.is_empty() {
        return Err(HttpError::bad_request("No params"));
    }
    let maxthreads = params.fields.get("maxthreads").map(|value| redirect::number(params, value));
    if maxthreads.as_ref().is_some_and(|value| !value.is_null() && !legacy::is_non_negative_integer(value)) {
        return Err(HttpError::bad_request("maxthreads must be a non-negative integer or null"));
    }
    let flag = |name: &str| params.fields.get(name).map(|value| values::flag(name, value)).transpose();
    let draining = match (flag("draining")?, flag("interrupt")?) {
        (Some(true), Some(true)) => Some(Draining::Interrupt),
        (_, Some(true)) => {
            return Err(HttpError::bad_request(
                "interrupt is for a node that is drained: give draining, too",
            ));
        }
        (draining, _) => draining.map(|draining| if draining { Draining::Yes } else { Draining::No }),
    };
    Ok(NodeChange { maxthreads: maxthreads.as_ref().map(json::to_bson), draining })
}

/// Removes a node whose DEN is not alive from the list. Its tasks stay; should a DEN of its name start, it comes back, without
/// its `maxthreads`.
#[utoipa::path(
    delete, path = "/nodes/{node}", tag = "nodes", operation_id = "deleteNode",
    responses(
        (status = 200, description = "Removed.", body = DeleteResult),
        (status = 409, description = "Its DEN is alive."),
    ),
)]
pub async fn remove(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    match changes::delete_node(&state, &who, Selector::parse(&name)).await? {
        Removed::Gone(_) => Ok(json::ok(&legacy::delete_result(1))),
        Removed::Alive => {
            Err(HttpError::conflict(format!("the DEN of node '{name}' is alive: end it first")))
        }
        Removed::Unknown => Err(HttpError::not_found(format!("no node '{name}'"))),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_node_has_its_id_twice() {
        let id = bson::oid::ObjectId::parse_str("6b0003b956635706337b691a").unwrap();
        let at = bson::DateTime::from_millis(1_795_163_066_819);
        let stored = doc! { "_id": id, "node": "vm", "timestamp": at, "maxthreads": null, "state": "alive" };
        let shown = node(stored, false);
        assert_eq!(
            json::compact(&shown),
            r#"{"_id":{"$oid":"6b0003b956635706337b691a"},"id":"6b0003b956635706337b691a","maxthreads":null,"node":"vm","timestamp":1795163066819}"#
        );
    }
}
