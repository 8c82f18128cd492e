//! `GET /nodes`

use actix_web::web::Data;
use bson::{Bson, Document};
use serde_json::Value;

use crate::api::Answer;
use crate::json::{self, Dates};
use crate::openapi::{self, OfRead};
use crate::state::State;

/// All nodes in order of name.
///
/// # Errors
/// The database cannot be reached.
#[utoipa::path(
    get, path = "/nodes", tag = "nodes", operation_id = "listNodes",
    responses((status = 200, description = "All nodes.", body = Vec<openapi::Node>), OfRead),
)]
pub async fn handle(state: Data<State>) -> Answer {
    let nodes = state.store.list_nodes().await?;
    Ok(json::ok(&nodes.iter().map(node).collect()))
}

/// A node as stored, with its id as text too, and times in milliseconds since 1970.
pub fn node(document: &Document) -> Value {
    let mut node = json::from_document(document, Dates::Millis);
    if let Some(Bson::ObjectId(id)) = document.get("_id") {
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
        let shown = node(&doc! { "_id": id, "node": "vm", "timestamp": at, "maxthreads": null });
        assert_eq!(
            json::compact(&shown),
            r#"{"_id":{"$oid":"6b0003b956635706337b691a"},"id":"6b0003b956635706337b691a","maxthreads":null,"node":"vm","timestamp":1795163066819}"#
        );
    }
}
