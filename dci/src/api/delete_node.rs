//! `DELETE /nodes/:node`

use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;
use disbatch_core::node::Removed;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{DeleteResult, ErrorBody, OfWrite};
use crate::state::State;
use crate::{changes, json, legacy};

/// Removes a node whose DEN is not alive from the list. Its tasks stay; should a DEN of its name start, it comes back, without
/// its `maxthreads`.
#[utoipa::path(
    delete, path = "/nodes/{node}", tag = "nodes", operation_id = "deleteNode",
    params((
        "node" = String, Path, example = "worker1",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    responses(
        (status = 200, description = "Removed.", body = DeleteResult),
        (status = 404, description = "There is no such node.", body = ErrorBody),
        (status = 409, description = "Its DEN is alive.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    delete(&state, &who, &name).await?;
    Ok(json::ok(&legacy::delete_result(1)))
}

/// Removes the node with this name or id.
pub async fn delete(state: &State, who: &Who, name: &str) -> Result<(), HttpError> {
    match changes::delete_node(state, who, Selector::parse(name)).await? {
        Removed::Gone(_) => Ok(()),
        Removed::Alive => {
            Err(HttpError::conflict(format!("the DEN of node '{name}' is alive: end it first")))
        }
        Removed::Unknown => Err(HttpError::not_found(format!("no node '{name}'"))),
    }
}
