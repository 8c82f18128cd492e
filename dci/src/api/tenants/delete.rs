//! `DELETE /tenants/:tenant`

use actix_web::web::{Data, Path};
use serde_json::json;

use super::not_found;
use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite, TenantDeleted};
use crate::state::State;
use crate::{changes, json};

/// Removes all limits of a tenant. Its queues, tasks and schedules stay.
#[utoipa::path(
    delete, path = "/tenants/{tenant}", tag = "admission", operation_id = "deleteTenant",
    params(("tenant" = String, Path, description = "Its name.", example = "acme")),
    responses(
        (status = 200, description = "Removed.", body = TenantDeleted),
        (status = 404, description = "It has no limits.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    delete(&state, &who, &name).await?;
    Ok(json::ok(&json!({ "deleted": 1 })))
}

/// Removes the limits of the tenant with this name.
pub async fn delete(state: &State, who: &Who, name: &str) -> Result<(), HttpError> {
    let deleted = changes::delete_tenant(state, who, name.to_owned()).await?;
    if deleted { Ok(()) } else { Err(not_found(name)) }
}
