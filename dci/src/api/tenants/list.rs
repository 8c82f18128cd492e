//! `GET /tenants`

use actix_web::HttpRequest;
use actix_web::web::Data;
use futures::{StreamExt, TryStreamExt};

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{OfRead, Tenant};
use crate::state::State;
use crate::tenants::{self, Shown};
use crate::{accept, json, ui};

/// So many tenants are looked at at once.
const AT_ONCE: usize = 4;

/// For whom there are tasks: all tenants that have a queue or limits, by name, with what each may take and what it takes.
#[utoipa::path(
    get, path = "/tenants", tag = "admission", operation_id = "listTenants",
    responses(
        (
            status = 200, content((Vec<Tenant> = "application/json"), (String = "text/html")),
            description = "All tenants; a page if `Accept` asks for HTML.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::tenants::render(&state).await));
    }
    Ok(json::ok(&all(&state).await?.iter().map(Shown::json).collect()))
}

/// All of them, with what they take.
pub async fn all(state: &State) -> Result<Vec<Shown>, HttpError> {
    let names = state.store.list_tenants().await?.into_iter().map(|tenant| tenant.name);
    let shown = futures::stream::iter(names).map(|name| tenants::one(state, name)).buffered(AT_ONCE);
    Ok(shown.try_collect().await?)
}
