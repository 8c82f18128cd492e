//! `POST /tenants/:tenant`

use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::{Answer, then};
use crate::openapi::{ErrorBody, OfWrite, Tenant, TenantLimits};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, tenants};

/// Sets what a tenant may take at most; null, or an empty field of a form, is no limit. What is not named stays as it is. Submissions
/// beyond a limit are refused with 429, and of any number at once exactly those get through that fit. What there is already
/// stays.
#[utoipa::path(
    post, path = "/tenants/{tenant}", tag = "admission", operation_id = "setTenant",
    params(("tenant" = String, Path, description = "Its name. It need not be known yet.", example = "acme")),
    request_body(content(
        (TenantLimits = "application/json"), (TenantLimits = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "The tenant.", body = Tenant),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    then::or_page(then::is_form(&params), set(&state, &who, &name, &params).await)
}

async fn set(state: &State, who: &Who, name: &str, params: &Params) -> Answer {
    let (name, limits) = (tenants::name(name)?, tenants::limits(params)?);
    changes::set_tenant(state, who, name.clone(), limits).await?;
    then::answer(params, json::ok(&tenants::one(state, name).await?.json()))
}
