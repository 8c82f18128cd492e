//! `POST /workers`

use actix_web::HttpResponse;
use actix_web::http::header::LOCATION;
use actix_web::web::Data;

use crate::access::Who;
use crate::api::{Answer, then, workers};
use crate::openapi::{self, ErrorBody, NewWorker, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::{changes, json, ui};

/// Makes a worker: its name is `_id` or `name`, and all else is the manifest of a plugin, with an engine whose work is done
/// elsewhere. What runs a program of a node, or sees of a node more than its container engine, is refused. In place of a manifest
/// there may be `worker`, as the lex jobs-scheduler has it.
#[utoipa::path(
    post, path = "/workers", tag = "workers", operation_id = "createWorker",
    request_body(content(
        (NewWorker = "application/json"),
        (NewWorker = "application/x-www-form-urlencoded"),
    )),
    responses(
        (status = 201, description = "Made.", body = openapi::Worker),
        (status = 400, description = "The definition is wrong.", body = ErrorBody),
        (status = 409, description = "There is a worker of this name.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, params: Params) -> Answer {
    then::or_page(then::is_form(&params), create(&state, &who, &params).await)
}

async fn create(state: &State, who: &Who, params: &Params) -> Answer {
    let new = workers::read(None, params)?;
    workers::check_names(state, std::slice::from_ref(&new)).await?;
    let name = new.name.clone();
    changes::create_worker(state, who, new).await?;
    let worker = workers::find(state, name.as_str()).await?;
    let made = HttpResponse::Created()
        .insert_header((LOCATION, ui::workers::place(&name)))
        .content_type(json::CONTENT_TYPE)
        .body(json::compact(&workers::view(&worker, who)));
    then::answer(params, made)
}
