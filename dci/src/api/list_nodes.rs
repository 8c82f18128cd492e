//! `GET /nodes`

use actix_web::HttpRequest;
use actix_web::web::Data;
use bson::{Bson, Document};
use serde_json::Value;

use crate::api::Answer;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::openapi::{self, Details, OfRead};
use crate::params::{Params, wants_details};
use crate::state::State;
use crate::{accept, fields, nodes, ui};

/// All nodes in order of name. With the option `.details`, also what their DENs say of themselves. Browsers get a page.
#[utoipa::path(
    get, path = "/nodes", tag = "nodes", operation_id = "listNodes",
    params(Details),
    responses(
        (
            status = 200, content((Vec<openapi::Node> = "application/json"), (String = "text/html")),
            description = "All nodes; a page if `Accept` asks for HTML.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, params: Result<Params, HttpError>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::nodes::render(&state).await));
    }
    let (nodes, details) = (state.store.list_nodes().await?, wants_details(params));
    let nodes = if details { nodes::as_they_are(&state, nodes).await?.0 } else { nodes };
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
