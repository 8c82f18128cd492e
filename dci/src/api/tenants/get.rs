//! `GET /tenants/:tenant`

use actix_web::web::{Data, Path};

use super::not_found;
use crate::api::Answer;
use crate::openapi::{ErrorBody, OfRead, Tenant};
use crate::state::State;
use crate::{json, tenants};

/// What a tenant may take, and what it takes now. Numbers above 10,000 are told as 10,001.
#[utoipa::path(
    get, path = "/tenants/{tenant}", tag = "admission", operation_id = "getTenant",
    params(("tenant" = String, Path, description = "Its name.", example = "acme")),
    responses(
        (status = 200, description = "The tenant.", body = Tenant),
        (status = 404, description = "It has no limits, no queue, no task and no schedule.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn handle(state: Data<State>, name: Path<String>) -> Answer {
    let shown = tenants::one(&state, name.into_inner()).await?;
    if shown.is_unknown() {
        return Err(not_found(&shown.tenant.name));
    }
    Ok(json::ok(&shown.json()))
}
