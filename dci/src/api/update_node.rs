//! `POST /nodes/:node`

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use disbatch_core::model::Selector;
use disbatch_core::node::{Draining, NodeChange};

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::{self, ErrorBody, OfWrite, UpdateResult};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, legacy, values};

/// Sets `maxthreads`, how many tasks may run on the node at once (null for no limit), or `draining`, whether it is
/// to claim nothing more. With `interrupt` besides, running tasks whose plugins can be interrupted go on elsewhere.
#[utoipa::path(
    post, path = "/nodes/{node}", tag = "nodes", operation_id = "updateNode",
    params((
        "node" = String, Path, example = "worker1",
        description = "Its id if 24 hexadecimal digits, else its name.",
    )),
    request_body(content(
        (openapi::NodeChange = "application/json"),
        (openapi::NodeChange = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 200, description = "Changed.", body = UpdateResult),
        (status = 400, description = "A parameter is wrong, or there is no such node.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    redirect::or_page(redirect::is_form(&params), update(&state, &who, &name, &params).await)
}

async fn update(state: &State, who: &Who, name: &str, params: &Params) -> Answer {
    let change = change(params)?;
    let updated = changes::update_node(state, who, Selector::parse(name), change).await?;
    let result = legacy::update_result(updated);
    if updated.matched == 0 {
        let inner = result["MongoDB::UpdateResult"].clone();
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, legacy::with(result, "error", inner)));
    }
    redirect::answer(params, json::ok(&result))
}

fn change(params: &Params) -> Result<NodeChange, HttpError> {
    if let Some(param) = params.unknown(&["maxthreads", "draining", "interrupt"]) {
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
